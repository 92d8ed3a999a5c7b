//! For `warpsmith doctor`: describes the devices that `CUDA_VISIBLE_DEVICES` hides.

use warpsmith::device::visible::{self, VARIABLE, Visible};

use crate::doctor::{Check, Status};

/// Describes the effect of the variable in this process, or `None` if it is not set.
pub fn check() -> Option<Check> {
    let text = std::env::var_os(VARIABLE)?;
    Some(describe(&text.to_string_lossy(), visible::machine().as_deref()))
}

/// Describes the effect of a list on the machine's devices, if these devices are known.
fn describe(text: &str, machine: Option<&[String]>) -> Check {
    let what = "visible devices";
    let set = format!("{VARIABLE}={text}");
    let Some(machine) = machine else {
        let detail = format!("{set}; the hidden GPUs are unknown without the driver's library NVML");
        return Check::new(what, Status::Note, detail, &[]);
    };
    let Visible { devices, mistake } = visible::read(Some(text), machine);
    // MIG instances are selected individually and do not have an index.
    let gpus = machine.iter().take_while(|identity| !identity.starts_with("MIG-")).count();
    let hidden: Vec<String> =
        (0..gpus).filter(|gpu| !devices.contains(gpu)).map(|gpu| gpu.to_string()).collect();
    let shows = match devices.len() {
        0 => "no device is visible".to_string(),
        1 => "one device is visible".to_string(),
        count => format!("{count} devices are visible"),
    };
    let hides = match hidden.as_slice() {
        [] => String::new(),
        [one] => format!("; hidden is GPU {one}"),
        several => format!("; hidden are the GPUs {}", several.join(", ")),
    };
    let status = if devices.is_empty() { Status::Note } else { Status::Ok };
    let Some(position) = mistake else {
        return Check::new(what, status, format!("{set}: {shows}{hides}"), &[]);
    };
    let entry = text.split(',').nth(position).unwrap_or_default();
    let fix = format!(
        "correct or unset {VARIABLE}: the invalid entry {}, `{entry}`, ends the list; an entry is an index below \
         {gpus} or an unambiguous UUID prefix, and no device may occur twice",
        position + 1
    );
    Check::new(what, Status::Note, format!("{set}: {shows}{hides}"), &[fix])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, devices: &[&str]) -> (Status, String, Vec<String>) {
        let machine: Vec<String> = devices.iter().map(|identity| identity.to_string()).collect();
        let Check { what, status, detail, fix } = describe(text, Some(&machine));
        assert_eq!(what, "visible devices");
        (status, detail, fix)
    }

    const MACHINE: [&str; 4] = ["GPU-a1", "GPU-a2", "GPU-b1", "MIG-c1"];

    #[test]
    fn a_list_says_what_it_shows_and_hides() {
        let ok = |detail: &str| (Status::Ok, format!("CUDA_VISIBLE_DEVICES={detail}"), vec![]);
        assert_eq!(found("2,0,1", &MACHINE), ok("2,0,1: 3 devices are visible"));
        assert_eq!(found("GPU-b,0", &MACHINE[2..3]).0, Status::Note);
        assert_eq!(found("0,1,-1", &MACHINE), ok("0,1,-1: 2 devices are visible; hidden is GPU 2"));
        assert_eq!(found("MIG-c", &MACHINE[2..]), ok("MIG-c: one device is visible; hidden is GPU 0"));
    }

    #[test]
    fn hiding_everything_on_purpose_is_a_note_without_advice() {
        for text in ["", "-1"] {
            let (status, detail, fix) = found(text, &MACHINE);
            let expected =
                format!("CUDA_VISIBLE_DEVICES={text}: no device is visible; hidden are the GPUs 0, 1, 2");
            assert_eq!((status, detail, fix.len()), (Status::Note, expected, 0));
        }
    }

    #[test]
    fn a_bad_entry_is_named_with_what_to_do() {
        let (status, detail, fix) = found("0,7,1", &MACHINE);
        assert_eq!(status, Status::Note);
        assert_eq!(detail, "CUDA_VISIBLE_DEVICES=0,7,1: one device is visible; hidden are the GPUs 1, 2");
        let [fix] = fix.as_slice() else { panic!("{fix:?}") };
        assert!(
            fix.starts_with(
                "correct or unset CUDA_VISIBLE_DEVICES: the invalid entry 2, `7`, ends the list; an entry is"
            ) && fix.contains("an index below 3"),
            "{fix}"
        );
        assert!(found("GPU-a", &MACHINE).2[0].contains("entry 1, `GPU-a`"));
        assert!(found("1,1", &MACHINE).2[0].contains("entry 2, `1`"));
    }

    #[test]
    fn without_the_library_only_the_text_is_known() {
        let check = describe("0", None);
        assert_eq!((check.status, check.fix.len()), (Status::Note, 0));
        assert!(check.detail.starts_with("CUDA_VISIBLE_DEVICES=0; ") && check.detail.contains("NVML"));
    }
}
