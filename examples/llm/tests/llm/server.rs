//! The server: completions, streams, limits, cancellation and garbage.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use llm::engine::Limits;
use llm::error::Result;
use llm::serve::{Options, serve};
use llm::text::{Decoding, Text};
use serde_json::{Value, json};

use crate::models::expected;
use crate::{engine, folder, stream};

/// Starts a server. It runs until the test program ends.
fn start(requests: usize) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stream = stream()?;
    let limits = Limits { sequences: 2, chunk: 64, pages: Some(4) };
    let engine = engine(&stream, "llama", 256, limits)?;
    let text = Text::read(&folder("llama"))?;
    let options = Options { name: "small".into(), connections: 8, requests, body: 4096, max_tokens: 200 };
    std::thread::spawn(move || serve(engine, text, listener, options));
    Ok(address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn post(address: SocketAddr, body: &str) -> TcpStream {
    let mut stream = connect(address);
    let head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    stream
}

/// Reads a response: its status and its body.
fn read(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn ask(address: SocketAddr, body: &Value) -> (u16, Value) {
    let (status, body) = read(post(address, &body.to_string()));
    (status, serde_json::from_str(&body).unwrap())
}

/// Text of the first tokens that follow the prompt.
pub fn continuation(count: usize) -> String {
    let (text, mut decoding) = (Text::read(&folder("llama")).unwrap(), Decoding::default());
    let greedy = expected("llama").greedy;
    greedy[..count].iter().filter_map(|token| text.decode(&mut decoding, *token).unwrap()).collect()
}

#[test]
fn completions_and_streams_contain_the_text() -> Result<()> {
    let address = start(8)?;
    let prompt = expected("llama").prompt;
    let request = json!({ "model": "small", "prompt": prompt, "max_tokens": 12, "temperature": 0 });
    let (status, body) = ask(address, &request);
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["choices"][0]["text"], continuation(12));
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["usage"]["completion_tokens"], 12);

    let mut streamed = request;
    streamed["stream"] = true.into();
    let parts = self::streamed(address, &streamed);
    assert_eq!((parts.len(), parts.concat()), (12, continuation(12)));
    Ok(())
}

/// Texts of the events of a streamed completion.
fn streamed(address: SocketAddr, request: &Value) -> Vec<String> {
    let (status, body) = read(post(address, &request.to_string()));
    let events: Vec<&str> = body.split('\n').filter_map(|line| line.trim().strip_prefix("data: ")).collect();
    let (last, events) = events.split_last().unwrap();
    assert_eq!((status, *last), (200, "[DONE]"));
    let text = |event: &&str| serde_json::from_str::<Value>(event).unwrap()["choices"][0]["text"].clone();
    events.iter().map(|event| text(event).as_str().unwrap().to_owned()).collect()
}

#[test]
fn stop_texts_end_completions() -> Result<()> {
    let address = start(8)?;
    let (prompt, whole) = (expected("llama").prompt, continuation(20));
    let characters: Vec<char> = whole.chars().collect();
    let stop: String = characters[7..10].iter().collect();
    let before = &whole[..whole.find(&stop).unwrap()];
    let mut request =
        json!({ "prompt": prompt, "max_tokens": 20, "temperature": 0, "stop": ["no such text", stop] });
    let (status, body) = ask(address, &request);
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        (&body["choices"][0]["text"], &body["choices"][0]["finish_reason"]),
        (&before.into(), &"stop".into())
    );
    request["stream"] = true.into();
    assert_eq!(streamed(address, &request).concat(), before);
    // A text that begins like a stop text is sent in the end.
    let last = characters[characters.len() - 1];
    let unfinished =
        json!({ "prompt": prompt, "max_tokens": 20, "temperature": 0, "stop": format!("{last}\u{0}") });
    assert_eq!(ask(address, &unfinished).1["choices"][0]["text"], whole);
    Ok(())
}

#[test]
fn wrong_requests_get_an_error_and_lose_no_other() -> Result<()> {
    let address = start(8)?;
    let prompt = expected("llama").prompt;
    let running = json!({ "prompt": prompt, "max_tokens": 30, "temperature": 0 });
    let running = post(address, &running.to_string());
    let refused = [
        ("{", 400, "EOF while parsing"),
        ("{\"max_tokens\":1}", 400, "missing field `prompt`"),
        ("{\"prompt\":\"\"}", 400, "the prompt contains no tokens"),
        ("{\"prompt\":[7,288]}", 400, "the prompt contains the token 288"),
        ("{\"prompt\":\"x\",\"max_tokens\":201}", 400, "max_tokens is 201, but must be 1 to 200"),
        ("{\"prompt\":\"x\",\"max_tokens\":-1}", 400, "invalid value"),
        ("{\"prompt\":\"x\",\"temperature\":3}", 400, "temperature is 3, but must be 0, or 0.001 to 2"),
        ("{\"prompt\":\"x\",\"top_p\":0}", 400, "top_p must be"),
        ("{\"prompt\":\"x\",\"n\":2}", 400, "this server supports neither logprobs nor n"),
        ("{\"prompt\":\"x\",\"stop\":[\"a\",\"\"]}", 400, "stop must be a text or up to 4 texts"),
        ("{\"prompt\":\"x\",\"stop\":5}", 400, "data did not match any variant"),
    ];
    for (body, status, message) in refused {
        let (found, body) = read(post(address, body));
        let body: Value = serde_json::from_str(&body).unwrap();
        let text = body["error"]["message"].as_str().unwrap();
        assert!(found == status && text.contains(message), "{found}: {text}");
    }
    let long: Vec<u32> = vec![1; 256];
    let (status, body) = ask(address, &json!({ "prompt": long }));
    assert!(status == 400 && body.to_string().contains("the prompt has 256 tokens"), "{body}");
    assert_eq!(ask(address, &json!({ "prompt": "x".repeat(5000) })).0, 413);

    let mut garbage = connect(address);
    garbage.write_all(b"\x16\x03\x01 this is not HTTP\r\n\r\n").unwrap();
    let mut answer = String::new();
    garbage.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let mut other = connect(address);
    other.write_all(b"GET /v1/engines HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(read(other).0, 404);

    let (status, body) = read(running);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["choices"][0]["text"]), (200, &continuation(30).into()));
    Ok(())
}

#[test]
fn cancelled_requests_make_room_for_others() -> Result<()> {
    let address = start(1)?;
    let long = json!({ "prompt": "A warp", "max_tokens": 200, "temperature": 0, "stream": true });
    let mut cancelled = post(address, &long.to_string());
    cancelled.read_exact(&mut [0; 16]).unwrap();
    let short = json!({ "prompt": "A warp", "max_tokens": 2, "temperature": 0 });
    assert_eq!(ask(address, &short).0, 429);
    cancelled.shutdown(Shutdown::Both).unwrap();
    drop(cancelled);
    // The server notices the end of the connection before the 200 tokens are complete.
    let status = (0..200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let (status, _) = ask(address, &short);
        (status != 429).then_some(status)
    });
    assert_eq!(status, Some(200));
    Ok(())
}
