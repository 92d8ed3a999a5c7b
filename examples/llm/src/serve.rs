//! [`serve`]: a server with OpenAI's completions interface.
//!
//! A thread owns the engine. Connections send it requests, and receive the tokens through a channel. If a client
//! disconnects, its channel closes, and the thread cancels the sequence.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::{Method, StatusCode, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use warpsmith::ops::Sampling;

use crate::engine::{Engine, Finish, Output, Request};
use crate::error::{Error, Result};
use crate::files::OneOrMany;
use crate::text::{Decoding, Text};

/// Time in which a client must send the head of a request, and in which it must send the body.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the model in responses.
    pub name: String,
    /// Open connections. Further clients wait.
    pub connections: usize,
    /// Requests that wait or run. Further requests are refused.
    pub requests: usize,
    /// Bytes of a request.
    pub body: usize,
    /// New tokens per request.
    pub max_tokens: usize,
}

/// A request, and the channel for its outputs. An error refuses the request.
type Job = (Request, UnboundedSender<Result<Output>>);
type Response = hyper::Response<Either<Full<Bytes>, Channel<Bytes>>>;
/// Result of a request. The error is the reason why it is refused.
type Outcome<T> = std::result::Result<T, (StatusCode, String)>;

/// State that all connections share.
struct Shared {
    text: Text,
    options: Options,
    jobs: Sender<Job>,
    requests: Arc<Semaphore>,
}

/// Serves requests until the engine fails.
pub fn serve(engine: Engine, text: Text, listener: TcpListener, options: Options) -> Result<()> {
    let (jobs, received) = channel();
    let [requests, connections] =
        [options.requests, options.connections].map(|count| Arc::new(Semaphore::new(count)));
    let shared = Arc::new(Shared { text, options, jobs, requests });
    let (failed, failure) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || failed.send(work(engine, &received)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::at("the server"))?;
    runtime.block_on(async {
        listener.set_nonblocking(true).map_err(Error::at("the server"))?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::at("the server"))?;
        let accept = async {
            while let Ok(permit) = connections.clone().acquire_owned().await {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(connect(shared.clone(), stream, permit))),
                    // Too many open files, for example: connections that end free some.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        };
        tokio::select! {
            () = accept => Ok(()),
            result = failure => result.unwrap_or_else(|_| Err(Error::at("the server")("the engine's thread panicked"))),
        }
    })
}

/// Runs the engine.
fn work(mut engine: Engine, jobs: &Receiver<Job>) -> Result<()> {
    let mut clients: HashMap<u64, UnboundedSender<Result<Output>>> = HashMap::new();
    loop {
        loop {
            let job = match engine.is_empty() {
                true => jobs.recv().map_err(|_| TryRecvError::Disconnected),
                false => jobs.try_recv(),
            };
            match job {
                Ok((request, outputs)) => match engine.submit(request) {
                    Ok(id) => drop(clients.insert(id, outputs)),
                    Err(error) => drop(outputs.send(Err(error))),
                },
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        let mut outputs = Vec::new();
        for (id, _) in clients.extract_if(|_, client| client.is_closed()) {
            outputs.extend(engine.cancel(id)?);
        }
        outputs.extend(engine.step()?);
        for output in outputs {
            let (id, has_ended) = (output.id, output.finish.is_some());
            if let Some(client) = clients.get(&id) {
                // A client that has gone is removed before the next step.
                let _ = client.send(Ok(output));
            }
            if has_ended {
                clients.remove(&id);
            }
        }
    }
}

/// Serves a connection.
async fn connect(shared: Arc<Shared>, stream: tokio::net::TcpStream, _permit: OwnedSemaphorePermit) {
    let service = service_fn(|request| {
        let response = respond(shared.clone(), request);
        async {
            let refused = |(status, message): (_, String)| reply(status, &failure(&message));
            Ok::<_, Infallible>(response.await.unwrap_or_else(refused))
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(TIMEOUT);
    // An error means that the client has sent something other than HTTP, or has gone.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

fn response(kind: &'static str, body: Either<Full<Bytes>, Channel<Bytes>>) -> Response {
    let mut response = hyper::Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn reply(status: StatusCode, body: &Value) -> Response {
    let mut response = response("application/json", Either::Left(Full::from(body.to_string())));
    *response.status_mut() = status;
    response
}

fn failure(message: &str) -> Value {
    json!({ "error": { "message": message, "type": "invalid_request_error" } })
}

/// Returns a function that adds the status to the reason why a request is refused.
fn refuse<P: ToString>(status: StatusCode) -> impl FnOnce(P) -> (StatusCode, String) {
    move |problem| (status, problem.to_string())
}

/// Answers a request.
async fn respond(shared: Arc<Shared>, request: hyper::Request<Incoming>) -> Outcome<Response> {
    if (request.method(), request.uri().path()) != (&Method::POST, "/v1/completions") {
        return Err(refuse(StatusCode::NOT_FOUND)("the server has only POST /v1/completions"));
    }
    let most = shared.options.body;
    let body = tokio::time::timeout(TIMEOUT, Limited::new(request.into_body(), most).collect()).await;
    let late = |_| refuse(StatusCode::REQUEST_TIMEOUT)("the body did not arrive in time");
    let large = format!("the body could not be read, or has more than {most} bytes");
    let body = body.map_err(late)?.map_err(|_| refuse(StatusCode::PAYLOAD_TOO_LARGE)(large))?;
    let parameters = serde_json::from_slice::<Parameters>(&body.to_bytes());
    let parameters = parameters.map_err(refuse(StatusCode::BAD_REQUEST))?;
    let is_stream = parameters.stream;
    let (request, stops) = parameters.check(&shared).map_err(refuse(StatusCode::BAD_REQUEST))?;
    let busy = |_| refuse(StatusCode::TOO_MANY_REQUESTS)("too many requests are waiting; retry later");
    let permit = shared.requests.clone().try_acquire_owned().map_err(busy)?;
    let prompt = request.prompt.len();
    let (sender, outputs) = unbounded_channel();
    shared.jobs.send((request, sender)).map_err(|_| stopped())?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let head = json!({ "id": format!("cmpl-{created}-{prompt}"), "object": "text_completion",
                       "created": created, "model": shared.options.name });
    let chunk = move |text: &str, finish: Option<&str>| {
        let mut chunk = head.clone();
        chunk["choices"] = json!([{ "index": 0, "text": text, "logprobs": null, "finish_reason": finish }]);
        chunk
    };
    let mut completion =
        Completion { shared, outputs, decoding: Decoding::default(), stops, held: String::new() };
    // An error before the first token has a status of its own.
    let (mut text, mut finish) = completion.next().await?;
    if !is_stream {
        let mut new = 1;
        while finish.is_none() {
            let (part, end) = completion.next().await?;
            (text, new, finish) = (text + &part, new + 1, end);
        }
        let mut body = chunk(&text, finish);
        body["usage"] =
            json!({ "prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new });
        return Ok(reply(StatusCode::OK, &body));
    }
    let (mut events, body) = Channel::new(16);
    tokio::spawn(async move {
        let (mut next, _permit): (Outcome<_>, _) = (Ok((text, finish)), permit);
        loop {
            let (event, has_ended) = match next {
                Ok((text, finish)) => (chunk(&text, finish), finish.is_some()),
                Err((_, message)) => (failure(&message), true),
            };
            let end = if has_ended { "data: [DONE]\n\n" } else { "" };
            // If the client has gone, the outputs are dropped, which cancels the sequence.
            if events.send_data(format!("data: {event}\n\n{end}").into()).await.is_err() || has_ended {
                return;
            }
            next = completion.next().await;
        }
    });
    Ok(response("text/event-stream", Either::Right(body)))
}

fn stopped() -> (StatusCode, String) {
    refuse(StatusCode::SERVICE_UNAVAILABLE)("the engine has failed")
}

/// Progress of a completion.
struct Completion {
    shared: Arc<Shared>,
    outputs: UnboundedReceiver<Result<Output>>,
    decoding: Decoding,
    /// Stop sequences. The completion ends before the first one that occurs.
    stops: Vec<String>,
    /// Text that has not been sent, because it can be the beginning of a stop sequence.
    held: String,
}

impl Completion {
    /// Waits for the next token. Returns the text that can be sent, and the reason if the completion ends.
    async fn next(&mut self) -> Outcome<(String, Option<&'static str>)> {
        let output = self.outputs.recv().await.ok_or_else(stopped)?;
        let output = output.map_err(refuse(StatusCode::BAD_REQUEST))?;
        let finish = match output.finish {
            None => None,
            Some(Finish::End) => Some("stop"),
            Some(Finish::Length) => Some("length"),
            Some(Finish::Failed(error)) => return Err(refuse(StatusCode::SERVICE_UNAVAILABLE)(error)),
        };
        let decode = |token| self.shared.text.decode(&mut self.decoding, token);
        let text = output.token.map(decode).transpose().map_err(refuse(StatusCode::SERVICE_UNAVAILABLE))?;
        let (part, is_stopped) = self.until_stop(&text.flatten().unwrap_or_default());
        Ok(match (is_stopped, finish) {
            (true, _) => (part, Some("stop")),
            (false, Some(_)) => (part + &std::mem::take(&mut self.held), finish),
            (false, None) => (part, None),
        })
    }

    /// Adds new text. Returns the text that can be sent, and true if a stop sequence follows.
    fn until_stop(&mut self, text: &str) -> (String, bool) {
        self.held += text;
        let at = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        let beginnings = self.stops.iter().flat_map(|stop| stop.char_indices().map(|(end, _)| &stop[..end]));
        let longest = beginnings.filter(|part| self.held.ends_with(part)).map(str::len).max().unwrap_or(0);
        let rest = self.held.split_off(at.unwrap_or(self.held.len() - longest));
        (std::mem::replace(&mut self.held, rest), at.is_some())
    }
}

/// Body of a request.
#[derive(Deserialize)]
struct Parameters {
    prompt: Prompt,
    max_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    #[serde(default)]
    stream: bool,
    n: Option<u32>,
    stop: Option<OneOrMany<String>>,
    logprobs: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

impl Parameters {
    /// Checks the parameters, and returns the request and its stop sequences. The error says what is wrong.
    fn check(self, shared: &Shared) -> std::result::Result<(Request, Vec<String>), String> {
        let (max_tokens, most) = (self.max_tokens.unwrap_or(16), shared.options.max_tokens);
        let temperature = self.temperature.unwrap_or(1.0);
        if max_tokens == 0 || max_tokens > most {
            return Err(format!("max_tokens is {max_tokens}, but must be 1 to {most}"));
        }
        if temperature != 0.0 && !(0.001..=2.0).contains(&temperature) {
            return Err(format!("temperature is {temperature}, but must be 0, or 0.001 to 2"));
        }
        if self.top_p.is_some_and(|p| !(p > 0.0 && p <= 1.0)) || self.top_k == Some(0) {
            return Err("top_p must be above 0 and at most 1, and top_k must be at least 1".into());
        }
        if self.n.unwrap_or(1) != 1 || self.logprobs.is_some() {
            return Err("this server supports neither logprobs nor n other than 1".into());
        }
        let stops = self.stop.map_or(Vec::new(), |stop| stop.as_slice().to_vec());
        if stops.len() > 4 || stops.iter().any(String::is_empty) {
            return Err("stop must be a text or up to 4 texts, and no text may be empty".into());
        }
        let prompt = match self.prompt {
            Prompt::Text(text) => shared.text.encode(&text).map_err(|error| error.to_string())?,
            Prompt::Tokens(tokens) => tokens,
        };
        let sampling = Sampling { temperature, top_k: self.top_k, top_p: self.top_p };
        Ok((Request { prompt, max_tokens, sampling, ignores_end: false }, stops))
    }
}
