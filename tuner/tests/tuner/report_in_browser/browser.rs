//! Headless Chromium, spoken to in the DevTools protocol over a pair of pipes.
//!
//! Guarantees: nothing that a page does outlives its [`Tab`]; everything that it logs, throws or asks for over the network
//! is kept from before the page begins; a browser that does not answer fails the test instead of holding it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long the browser may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to close.
const CLOSING: Duration = Duration::from_secs(5);
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A page in a browser of its own.
pub struct Tab {
    browser: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    events: Vec<Value>,
    last_id: u64,
    profile: PathBuf,
}

impl Tab {
    /// Opens a file in a window of so many pixels.
    pub fn open(file: &Path, width: u32) -> Self {
        let program = std::env::var("CHROMIUM").ok();
        let program = program.as_deref().into_iter().chain(PROGRAMS).find(|program| {
            let found =
                Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            found.is_ok_and(|status| status.success())
        });
        let program = program.expect(
            "there is no Chromium: install it with cargo xtask setup (or apt-get install chromium), or name it in CHROMIUM",
        );
        let profile = file.with_extension("profile");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--remote-debugging-pipe",
        ];
        // The browser reads commands from descriptor 3 and writes to descriptor 4.
        let mut browser = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<&0 4>&1 0</dev/null 1>&2"#, "sh", program])
            .args(arguments)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (browser.stdin.take().unwrap(), browser.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let value = serde_json::from_slice(&message).unwrap();
                message.clear();
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let (session, events) = (String::new(), Vec::new());
        let mut tab = Self { browser, input, messages, session, events, last_id: 0, profile };
        let target = tab.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        tab.session = tab.call("Target.attachToTarget", target)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Runtime", "Log", "Network", "Page"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        // Times are those of the page's thread on its processor: they do not depend on what else the machine does.
        tab.call("Performance.enable", json!({ "timeDomain": "threadTicks" }));
        tab.resize(width);
        tab.show(file);
        tab
    }

    /// Shows another file, of which nothing has been logged or asked for yet.
    pub fn show(&mut self, file: &Path) {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            self.receive();
        }
    }

    /// Seconds for which the page's thread has worked: parsing, scripts, layout and painting.
    pub fn worked_s(&mut self) -> f64 {
        let metrics = self.call("Performance.getMetrics", json!({}));
        let metrics = metrics["metrics"].as_array().unwrap();
        let work = metrics.iter().find(|metric| metric["name"] == "TaskDuration").unwrap();
        work["value"].as_f64().unwrap()
    }

    /// Sends a command and waits for its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        self.input.flush().unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == self.last_id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let message = self.messages.recv_timeout(PATIENCE).expect("the browser answers");
        if message.get("method").is_some() {
            self.events.push(message.clone());
        }
        message
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        );
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// How many elements a selector finds.
    pub fn count(&mut self, selector: &str) -> u64 {
        self.value(&format!("document.querySelectorAll({}).length", json!(selector))).as_u64().unwrap()
    }

    /// The texts of the elements that a selector finds.
    pub fn texts(&mut self, selector: &str) -> Vec<String> {
        let expression =
            format!("[...document.querySelectorAll({})].map((found) => found.textContent)", json!(selector));
        serde_json::from_value(self.value(&expression)).unwrap()
    }

    /// Clicks the middle of the first element that a selector finds, as a mouse does.
    pub fn click(&mut self, selector: &str) {
        let place = self.value(&format!(
            "(() => {{ const found = document.querySelector({}); found.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
             const box = found.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Gives the first element that a selector finds the focus.
    pub fn focus(&mut self, selector: &str) {
        self.value(&format!("document.querySelector({}).focus()", json!(selector)));
    }

    /// Presses and releases a key.
    pub fn press(&mut self, key: &str, code: u32, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Types into what has the focus.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Chooses an option of the list with this label in a section, by the option's text.
    pub fn choose(&mut self, section: &str, label: &str, option: &str) {
        self.value(&format!(
            "(() => {{ const list = [...document.querySelectorAll({} + ' label')].find((label) => label.firstChild.textContent.trim() === {}).querySelector('select'); \
             list.selectedIndex = [...list.options].findIndex((option) => option.textContent === {}); \
             list.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()",
            json!(section),
            json!(label),
            json!(option)
        ));
    }

    /// Makes the window another width.
    pub fn resize(&mut self, width: u32) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Waits until the page has been laid out and drawn.
    pub fn settle(&mut self) {
        self.value(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))",
        );
    }

    /// What the page logged as an error or a warning, threw, or asked for beside itself.
    pub fn complaints(&mut self) -> Vec<String> {
        self.settle();
        let bad = |event: &&Value| {
            let parameters = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => true,
                "Runtime.consoleAPICalled" => true,
                "Log.entryAdded" => parameters["entry"]["level"] != "verbose",
                "Network.requestWillBeSent" => parameters["type"] != "Document",
                _ => false,
            }
        };
        self.events.iter().filter(bad).map(Value::to_string).collect()
    }

    /// What was asked for, the page itself included.
    pub fn requests(&self) -> Vec<&str> {
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.map(|event| event["params"]["request"]["url"].as_str().unwrap_or_default()).collect()
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // A browser that is asked to close takes its temporary files along. Nothing can be done about one that
        // has gone already, and one that does not answer is ended.
        let _ = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.input.flush();
        let asked = Instant::now();
        while matches!(self.browser.try_wait(), Ok(None)) && asked.elapsed() < CLOSING {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.browser.kill();
        let _ = self.browser.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
