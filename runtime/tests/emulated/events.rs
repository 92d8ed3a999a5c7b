//! Tests of events: queries in each state, their origin, and the waits they save.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{DeviceBuffer, Error, Event, Launch, Stream};

#[test]
fn an_unrecorded_event_delays_nothing() {
    let (driver, device) = device();
    let event = Event::new(&device).unwrap();
    driver.reset_calls();
    assert!(event.query().unwrap());
    event.synchronize().unwrap();
    device.default_stream().wait_event(&event).unwrap();
    let all: u64 = Call::ALL.iter().map(|call| driver.calls(*call)).sum();
    assert_eq!(all, 0);
}

#[test]
fn an_event_means_its_last_record() {
    let (driver, device) = device();
    let [first, second] = [(); 2].map(|()| Stream::from_pool(&device).unwrap());
    let event = Event::new(&device).unwrap();
    event.record(&first).unwrap();
    event.synchronize().unwrap();
    assert!(event.query().unwrap());
    let hold = driver.hold();
    event.record(&second).unwrap();
    assert!(!event.query().unwrap(), "the last record counts");
    drop(hold);
    event.synchronize().unwrap();
    assert!(event.query().unwrap());
}

#[test]
fn elapsed_time_says_why_there_is_none() {
    let (driver, [device, other]) = devices();
    let stream = device.default_stream();
    let why = |later: &Event, earlier: &Event| match later.elapsed_us(earlier) {
        Err(Error::NoElapsedTime(why)) => why,
        other => panic!("{other:?}"),
    };
    let [timed, unrecorded] = [(); 2].map(|()| Event::timed(&device).unwrap());
    let plain = stream.record_event().unwrap();
    timed.record(&stream).unwrap();
    stream.synchronize().unwrap();
    assert!(why(&timed, &plain).contains("without timing"));
    assert!(why(&plain, &timed).contains("without timing"));
    assert!(why(&timed, &unrecorded).contains("not recorded"));
    assert!(why(&Event::timed(&other).unwrap(), &timed).contains("different devices"));
    let hold = driver.hold();
    let pending = stream.record_timed_event().unwrap();
    assert!(why(&pending, &timed).contains("has not completed yet"));
    drop(hold);
    driver.set_delay(Duration::from_millis(2));
    let last = stream.record_timed_event().unwrap();
    stream.synchronize().unwrap();
    let elapsed = last.elapsed_us(&timed).unwrap();
    assert!(elapsed >= 2000.0, "{elapsed} us");
    assert_eq!(timed.elapsed_us(&timed).unwrap(), 0.0);
}

#[test]
fn an_event_is_recorded_on_its_device_only() {
    let (_, [here, there]) = devices();
    let event = Event::new(&here).unwrap();
    let error = event.record(&there.default_stream()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::EventOfOtherDevice { .. }), "{text}");
    assert!(text.contains("cpu:0") && text.contains("cpu:1"), "{text}");
    event.record(&here.default_stream()).unwrap();
    there.default_stream().wait_event(&event).unwrap();
    there.synchronize().unwrap();
}

#[test]
fn events_return_to_the_pool() {
    let (driver, device, stream) = fixture();
    for _ in 0..50 {
        let (plain, timed) = (stream.record_event().unwrap(), stream.record_timed_event().unwrap());
        // SAFETY: the handles are only compared.
        assert_ne!(unsafe { plain.handle() }, unsafe { timed.handle() });
    }
    assert_eq!((driver.calls(Call::EventCreate), driver.calls(Call::EventRecord)), (2, 100));
    drop((stream, device));
    assert_eq!(driver.calls(Call::EventDestroy), 2);
}

#[test]
fn an_awaited_event_may_be_dropped() {
    let (driver, device) = device();
    let [slow, fast, third] = [(); 3].map(|()| Stream::from_pool(&device).unwrap());
    let reached = Arc::new(AtomicBool::new(false));
    driver.set_stream_delay(slow.handle(), Duration::from_millis(20));
    {
        let reached = Arc::clone(&reached);
        slow.host_function(move || reached.store(true, Ordering::SeqCst)).unwrap();
    }
    let event = slow.record_event().unwrap();
    // SAFETY: the handle is only compared.
    let handle = unsafe { event.handle() };
    fast.wait_event(&event).unwrap();
    drop(event);
    let again = third.record_event().unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { again.handle() }, handle, "from the pool");
    fast.synchronize().unwrap();
    assert!(reached.load(Ordering::SeqCst), "the wait kept to the record that it was enqueued for");
}

#[test]
fn a_recorded_event_spares_later_waits() {
    let (driver, device) = device();
    let [copying, computing] = [(); 2].map(|()| Stream::from_pool(&device).unwrap());
    let kernel = module(&device).kernel::<Axpy>().unwrap();
    let mut x = DeviceBuffer::<f32>::uninit(&copying, 100).unwrap();
    let mut unrelated = DeviceBuffer::<f32>::zeros(&copying, 100).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&computing, 100).unwrap();
    kernel.launch(&copying, Launch::auto(100), (1.0, &unrelated.as_slice(), &mut x)).unwrap();
    let ready = copying.record_event().unwrap();
    let hold = driver.hold();
    copying.memset(&mut unrelated, 0).unwrap();
    driver.reset_calls();
    computing.wait_event(&ready).unwrap();
    kernel.launch(&computing, Launch::auto(100), (1.0, &x, &mut y)).unwrap();
    let calls = [Call::EventRecord, Call::StreamWaitEvent, Call::Launch].map(|call| driver.calls(call));
    assert_eq!(calls, [0, 1, 1], "no second wait, which would be for the unrelated work too");
    drop(hold);
    device.synchronize().unwrap();
}

#[test]
fn a_rerecorded_event_is_never_mistaken() {
    let (_, device) = device();
    let [writing, other] = [(); 2].map(|()| Stream::from_pool(&device).unwrap());
    let event = Event::new(&device).unwrap();
    let kernel = module(&device).kernel::<Iota>().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(|_| event.record(&other).unwrap()));
        let reading = Stream::from_pool(&device).unwrap();
        for _ in 0..100 {
            let mut buffer = DeviceBuffer::<u32>::zeros(&writing, 20).unwrap();
            kernel.launch(&writing, Launch::auto(20), (&mut buffer,)).unwrap();
            event.record(&writing).unwrap();
            reading.wait_event(&event).unwrap();
            let copy = buffer.clone_on(&reading).unwrap();
            assert_eq!(copy.to_host().unwrap(), (0..20).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_failed_call_leaves_the_event_unchanged() {
    let (driver, device, stream) = fixture();
    driver.fail_call(Call::EventCreate, 0);
    Event::new(&device).unwrap_err();
    let event = Event::new(&device).unwrap();
    driver.fail_call(Call::EventRecord, 0);
    event.record(&stream).unwrap_err();
    assert!(event.query().unwrap(), "it counts as not recorded");
    event.record(&stream).unwrap();
    driver.fail_call(Call::EventQuery, 0);
    event.query().unwrap_err();
    driver.fail_call(Call::EventSynchronize, 0);
    event.synchronize().unwrap_err();
    event.synchronize().unwrap();
}
