//! [`serve`]: a server with OpenAI's completions interface.
//!
//! A thread owns the engine. Connections send it requests, and receive the tokens through a channel. If a client
//! disconnects, its channel closes, and the thread cancels the sequence.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use warpsmith::ops::Sampling;

use crate::engine::{Engine, Finish, Output, Request};
use crate::error::{Error, Result};
use crate::text::{Decoding, Text};

/// Time in which a client must send the head of a request, and in which it must send the body.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Temperatures below this one select the most probable token.
const LOWEST_TEMPERATURE: f32 = 1e-3;

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

/// A request for the engine's thread.
struct Job {
    request: Request,
    events: UnboundedSender<Event>,
}

enum Event {
    Token {
        token: Option<u32>,
        finish: Option<Finish>,
    },
    /// The engine did not accept the request.
    Refused(Error),
}

/// What all connections share.
struct Shared {
    text: Text,
    options: Options,
    jobs: Sender<Job>,
    requests: Arc<Semaphore>,
}

/// Serves requests until the engine fails.
pub fn serve(engine: Engine, text: Text, listener: TcpListener, options: Options) -> Result<()> {
    let (jobs, received) = channel();
    let requests = Arc::new(Semaphore::new(options.requests));
    let connections = Arc::new(Semaphore::new(options.connections));
    let shared = Arc::new(Shared { text, options, jobs, requests });
    let (failed, failure) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || failed.send(work(engine, &received)));
    let network = |error| Error::Network { what: "the server", error };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(network)?;
    runtime.block_on(async {
        listener.set_nonblocking(true).map_err(network)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(network)?;
        let accept = async {
            loop {
                let Ok(permit) = connections.clone().acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(connect(shared.clone(), stream, permit))),
                    // Too many open files, for example: connections that end free some.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        };
        tokio::select! {
            () = accept => Ok(()),
            result = failure => result.unwrap_or_else(|_| Err(Error::Usage("the engine's thread panicked".into()))),
        }
    })
}

/// Runs the engine.
fn work(mut engine: Engine, jobs: &Receiver<Job>) -> Result<()> {
    let mut clients: HashMap<u64, UnboundedSender<Event>> = HashMap::new();
    loop {
        loop {
            let job = if engine.is_empty() {
                jobs.recv().map_err(|_| TryRecvError::Disconnected)
            } else {
                jobs.try_recv()
            };
            match job {
                Ok(Job { request, events }) => match engine.submit(request) {
                    Ok(id) => drop(clients.insert(id, events)),
                    Err(error) => drop(events.send(Event::Refused(error))),
                },
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        let gone: Vec<u64> =
            clients.iter().filter(|(_, events)| events.is_closed()).map(|(id, _)| *id).collect();
        let mut outputs = Vec::new();
        for id in gone {
            clients.remove(&id);
            outputs.extend(engine.cancel(id)?);
        }
        outputs.extend(engine.step()?);
        for Output { id, token, finish } in outputs {
            let ends = finish.is_some();
            if let Some(events) = clients.get(&id) {
                // A client that has gone is removed before the next step.
                let _ = events.send(Event::Token { token, finish });
            }
            if ends {
                clients.remove(&id);
            }
        }
    }
}

/// Serves a connection.
async fn connect(shared: Arc<Shared>, stream: tokio::net::TcpStream, _permit: OwnedSemaphorePermit) {
    let service = service_fn(|request| respond(shared.clone(), request));
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(TIMEOUT);
    // The client has sent something other than HTTP, or has gone.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

type Response = hyper::Response<Either<Full<Bytes>, Completion>>;

fn reply(status: StatusCode, body: &Value) -> Response {
    let mut response = hyper::Response::new(Either::Left(Full::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn refuse(status: StatusCode, message: &str) -> Response {
    reply(status, &failure(message))
}

fn failure(message: &str) -> Value {
    json!({ "error": { "message": message, "type": "invalid_request_error" } })
}

/// Answers a request.
async fn respond(
    shared: Arc<Shared>,
    request: hyper::Request<Incoming>,
) -> std::result::Result<Response, Infallible> {
    let is = |method, path| request.method() == method && request.uri().path() == path;
    if is(Method::GET, "/v1/models") {
        let model = json!({ "id": shared.options.name, "object": "model", "owned_by": "local" });
        return Ok(reply(StatusCode::OK, &json!({ "object": "list", "data": [model] })));
    }
    if !is(Method::POST, "/v1/completions") {
        let message = "the server has POST /v1/completions and GET /v1/models";
        return Ok(refuse(StatusCode::NOT_FOUND, message));
    }
    let body = Limited::new(request.into_body(), shared.options.body).collect();
    let body = match tokio::time::timeout(TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let message =
                format!("the body could not be read, or has more than {} bytes", shared.options.body);
            return Ok(refuse(StatusCode::PAYLOAD_TOO_LARGE, &message));
        }
        Err(_) => return Ok(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    };
    let parsed = serde_json::from_slice::<Parameters>(&body)
        .map_err(|error| error.to_string())
        .and_then(|parameters| parameters.check(&shared));
    let (request, is_stream) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return Ok(refuse(StatusCode::BAD_REQUEST, &message)),
    };
    let Ok(permit) = shared.requests.clone().try_acquire_owned() else {
        return Ok(refuse(StatusCode::TOO_MANY_REQUESTS, "too many requests are waiting; retry later"));
    };
    let prompt = request.prompt.len();
    let (sender, events) = unbounded_channel();
    let job = Job { request, events: sender };
    if shared.jobs.send(job).is_err() {
        return Ok(refuse(StatusCode::SERVICE_UNAVAILABLE, "the engine has failed"));
    }
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut completion = Completion {
        head: json!({ "id": format!("cmpl-{created}-{prompt}"), "object": "text_completion", "created": created,
                      "model": shared.options.name }),
        shared,
        events,
        first: None,
        decoding: Decoding::default(),
        sent: 0,
        has_ended: false,
        _permit: permit,
    };
    let first = completion.events.recv().await;
    if let Some(Event::Refused(error)) = first {
        return Ok(refuse(StatusCode::BAD_REQUEST, &error.to_string()));
    }
    completion.first = first;
    if is_stream {
        let mut response = hyper::Response::new(Either::Right(completion));
        let kind = header::HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        return Ok(response);
    }
    let mut text = String::new();
    loop {
        let part = std::future::poll_fn(|context| completion.poll_part(context)).await;
        let part = match part {
            Ok(part) => part,
            Err(message) => return Ok(refuse(StatusCode::SERVICE_UNAVAILABLE, &message)),
        };
        text.push_str(&part.text);
        if let Some(reason) = part.finish {
            let mut body = completion.chunk(&text, Some(reason));
            let new = completion.sent;
            body["usage"] =
                json!({ "prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new });
            return Ok(reply(StatusCode::OK, &body));
        }
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
    stop: Option<Value>,
    logprobs: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

impl Parameters {
    /// Checks the parameters. Returns the request, and whether the client wants a stream.
    fn check(self, shared: &Shared) -> std::result::Result<(Request, bool), String> {
        let Self { temperature, top_p, top_k, .. } = self;
        let max_tokens = self.max_tokens.unwrap_or(16);
        let most = shared.options.max_tokens;
        let temperature = temperature.unwrap_or(1.0);
        if max_tokens == 0 || max_tokens > most {
            return Err(format!("max_tokens is {max_tokens}, but must be 1 to {most}"));
        }
        if !(0.0..=2.0).contains(&temperature) {
            return Err(format!("temperature is {temperature}, but must be 0 to 2"));
        }
        if top_p.is_some_and(|p| !(p > 0.0 && p <= 1.0)) || top_k == Some(0) {
            return Err("top_p must be above 0 and at most 1, and top_k must be at least 1".into());
        }
        if self.n.unwrap_or(1) != 1 || self.stop.is_some() || self.logprobs.is_some() {
            return Err("this server does not support n other than 1, stop, and logprobs".into());
        }
        let prompt = match self.prompt {
            Prompt::Text(text) => shared.text.encode(&text).map_err(|error| error.to_string())?,
            Prompt::Tokens(tokens) => tokens,
        };
        let temperature = if temperature < LOWEST_TEMPERATURE { 0.0 } else { temperature };
        let sampling = Sampling { temperature, top_k, top_p };
        Ok((Request { prompt, max_tokens, sampling, ignores_end: false }, self.stream))
    }
}

/// The text of a sequence, as server-sent events.
struct Completion {
    shared: Arc<Shared>,
    /// Fields of each event.
    head: Value,
    events: UnboundedReceiver<Event>,
    /// The first event, which has been received before the response started.
    first: Option<Event>,
    decoding: Decoding,
    /// Number of new tokens.
    sent: usize,
    has_ended: bool,
    _permit: OwnedSemaphorePermit,
}

/// New text of a sequence.
struct Part {
    text: String,
    finish: Option<&'static str>,
}

impl Completion {
    /// Waits for the next token.
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<Part, String>> {
        let event = match self.first.take() {
            Some(event) => Some(event),
            None => ready!(self.events.poll_recv(context)),
        };
        let (token, finish) = match event {
            Some(Event::Token { token, finish }) => (token, finish),
            Some(Event::Refused(error)) => return Poll::Ready(Err(error.to_string())),
            None => return Poll::Ready(Err("the engine has failed".into())),
        };
        let finish = match finish {
            None => None,
            Some(Finish::End) => Some("stop"),
            Some(Finish::Length) => Some("length"),
            Some(Finish::Failed(error)) => return Poll::Ready(Err(error.to_string())),
        };
        let Some(token) = token else { return Poll::Ready(Ok(Part { text: String::new(), finish })) };
        self.sent += 1;
        let text = self.shared.text.decode(&mut self.decoding, token).map_err(|error| error.to_string());
        Poll::Ready(text.map(|text| Part { text: text.unwrap_or_default(), finish }))
    }

    /// Returns an event.
    fn chunk(&self, text: &str, finish: Option<&str>) -> Value {
        let mut chunk = self.head.clone();
        chunk["choices"] = json!([{ "index": 0, "text": text, "logprobs": null, "finish_reason": finish }]);
        chunk
    }
}

impl Body for Completion {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let (event, has_ended) = match ready!(self.poll_part(context)) {
            Ok(part) => (self.chunk(&part.text, part.finish), part.finish.is_some()),
            Err(message) => (failure(&message), true),
        };
        self.has_ended = has_ended;
        let end = if has_ended { "data: [DONE]\n\n" } else { "" };
        Poll::Ready(Some(Ok(Frame::data(format!("data: {event}\n\n{end}").into()))))
    }
}
