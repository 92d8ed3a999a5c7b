//! Atomics, cells, and numbers as bytes.

use super::Writer;

/// Atomics on the stack of a thread, including through functions that are not inlined.
pub fn local_atomics(w: &mut Writer) {
    let (bits, word) = (w.pick(&["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"]), w.word());
    let atomic = format!("Atomic{}", bits.to_uppercase());
    w.line(format!("use core::sync::atomic::{{{atomic}, AtomicBool, Ordering}};"));
    w.line(format!(
        "#[inline(never)] fn bump(a: &{atomic}, x: {bits}) -> {bits} {{ a.fetch_add(x, Ordering::Relaxed) }}"
    ));
    w.line(format!("#[inline(never)] fn replace(a: &{atomic}, x: {bits}, y: {bits}) -> Result<{bits}, {bits}> {{ a.compare_exchange(x, y, Ordering::AcqRel, Ordering::Relaxed) }}"));
    w.line(format!("let a = {atomic}::new(c.w({word}) as {bits});"));
    w.line(format!(
        "let list: [{atomic}; 4] = core::array::from_fn(|k| {atomic}::new(c.w(k as u64 + {word}) as {bits}));"
    ));
    w.line("let flag = AtomicBool::new(false);");
    for _ in 0..w.within(2, 5) {
        let (p, q) = (w.word(), w.word());
        let order = w.pick(&["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"]);
        let target = if w.below(2) == 0 { "a".to_owned() } else { format!("list[c.w({q}) as usize % 4]") };
        match w.below(9) {
            0 => {
                let op = w.pick(&["add", "sub", "and", "or", "xor", "nand", "max", "min"]);
                w.line(format!("s.add({target}.fetch_{op}(c.w({p}) as {bits}, Ordering::{order}) as u64);"));
            }
            1 => w.line(format!("s.add({target}.swap(c.w({p}) as {bits}, Ordering::{order}) as u64);")),
            2 => w.line(format!("s.add(bump(&{target}, c.w({p}) as {bits}) as u64);")),
            3 => w.line(format!("s.add(match {target}.compare_exchange(c.w({p}) as {bits}, 5, Ordering::SeqCst, Ordering::Acquire) {{ Ok(x) => x as u64, Err(x) => !(x as u64) }});")),
            4 => w.line(format!("s.add(match replace(&{target}, {target}.load(Ordering::Relaxed), c.w({p}) as {bits}) {{ Ok(x) => x as u64, Err(x) => !(x as u64) }});")),
            5 => w.line(format!("s.add({target}.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |x| x.checked_add(3)).map_or(9, |x| x as u64));")),
            6 => w.line(format!("s.add(flag.fetch_xor(c.w({p}) & 1 == 0, Ordering::{order}) as u64); s.add(flag.swap(true, Ordering::{order}) as u64);")),
            7 => w.line(format!("{target}.store(c.w({p}) as {bits}, Ordering::Release);")),
            _ => w.line(format!("s.add(flag.compare_exchange(false, true, Ordering::{}, Ordering::Relaxed).is_ok() as u64);", order)),
        }
    }
    w.line("for x in &list { s.add(x.load(Ordering::Acquire) as u64); }");
    w.line("s.add(a.into_inner() as u64);");
}

/// Updates of device memory by all threads in any order: only their outcome is compared.
pub fn global_atomics(w: &mut Writer) {
    for _ in 0..w.within(2, 4) {
        let (at, value) = (w.word(), w.word());
        let order = w.pick(&["Relaxed", "AcqRel", "SeqCst"]);
        let (first, count, op) = w.pick(&[
            (0, 8, "add"),
            (8, 4, "max"),
            (12, 4, "min"),
            (16, 4, "xor"),
            (20, 2, "or"),
            (22, 2, "and"),
        ]);
        let condition = w.scope.condition(0);
        w.line(format!("if {condition} {{ c.atomics[{first} + c.w({at}) as usize % {count}].fetch_{op}(c.w({value}) ^ s.v[2], Ordering::{order}); }}"));
    }
    let at = w.word();
    w.line(format!("{{ let a = &c.atomics[c.w({at}) as usize % 8]; let mut old = a.load(Ordering::Relaxed); while let Err(seen) = a.compare_exchange(old, old.wrapping_add({at}), Ordering::AcqRel, Ordering::Relaxed) {{ old = seen; }} }}"));
    w.line(format!("s.add(c.w({at}));"));
}

/// Interior mutability, swaps and uninitialized memory.
pub fn cells(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let (a, b) = (w.scope.input(of), w.scope.input(of));
    w.line("use core::cell::{Cell, OnceCell, RefCell}; use core::mem::MaybeUninit;");
    w.line(format!("let (cell, shared, once): (Cell<{t}>, RefCell<[{t}; 3]>, OnceCell<{t}>) = (Cell::new({a}), RefCell::new([{b}, 1, 2]), OnceCell::new());"));
    for _ in 0..w.within(2, 5) {
        let (word, at) = (w.word(), w.below(3));
        match w.below(8) {
            0 => w.line(format!("cell.set(cell.get().rotate_left({at} + 1));")),
            1 => w.line(format!("{{ let mut list = shared.borrow_mut(); list[{at}] = cell.replace(list[0]); }}")),
            2 => w.line("s.add(shared.try_borrow_mut().is_ok() as u64);"),
            3 => w.line(format!("{{ let first = shared.borrow(); s.add(shared.try_borrow_mut().is_err() as u64 ^ first[{at}] as u64); }}")),
            4 => w.line(format!("s.add(*once.get_or_init(|| c.w({word}) as {t}) as u64);")),
            5 => w.line(format!("if c.w({word}) & 1 == 0 {{ s.add(once.set({at}).is_ok() as u64); }}")),
            6 => w.line(format!("{{ let mut list = [MaybeUninit::<{t}>::uninit(); 5]; for (i, x) in list.iter_mut().enumerate() {{ x.write(cell.get().wrapping_add(i as {t})); }} let list = list.map(|x| unsafe {{ x.assume_init() }}); s.add(list.iter().fold(0, |h, x| mix(h, *x as u64))); }}")),
            _ => w.line(format!("{{ let old = core::mem::take(&mut *shared.borrow_mut()); s.add(old[{at}] as u64); shared.borrow_mut()[0] = old[2]; }}")),
        }
    }
    w.observe("cell.get()", t);
    w.line("for x in shared.into_inner() { s.add(x as u64); }");
    w.line("s.add(once.get().map_or(4, |x| *x as u64));");
}

/// Numbers as bytes in both byte orders, unaligned reads and writes.
pub fn bytes(w: &mut Writer) {
    let (p, q) = (w.scope.any_int(), w.scope.any_int());
    let (t, u) = (p.name, q.name);
    let (a, size) = (w.scope.input(p), q.bits as usize / 8);
    let len = 34;
    w.line(format!("let mut x: {t} = {a};"));
    let word = w.word();
    w.line(format!("let mut b: [u8; {len}] = core::array::from_fn(|k| c.w(k as u64 + {word}) as u8);"));
    for _ in 0..w.within(2, 5) {
        let (word, at) = (w.word(), w.below(len - 16));
        let order = w.pick(&["le", "be", "ne"]);
        match w.below(7) {
            0 => w.line(format!("b[{at}..{at} + size_of::<{t}>()].copy_from_slice(&x.to_{order}_bytes());")),
            1 => w.line(format!("{{ let i = c.w({word}) as usize % {}; let y = {u}::from_{order}_bytes(core::array::from_fn(|k| b[i + k])); x ^= y as {t}; }}", len - size)),
            2 => w.line(format!("{{ let y = unsafe {{ b.as_ptr().add({at}).cast::<{u}>().read_unaligned() }}; x = x.wrapping_add(y as {t}); }}")),
            3 => w.line(format!("unsafe {{ b.as_mut_ptr().add(c.w({word}) as usize % {}).cast::<{u}>().write_unaligned(x as {u}) }};", len - size)),
            4 => w.line(format!("s.add(unsafe {{ core::mem::transmute::<[u8; 8], u64>(core::array::from_fn(|k| b[k + {at}])) }});")),
            5 => { let n = w.below(20); w.line(format!("b.copy_within({at}..{at} + 9, {});", n)) },
            _ => w.line(format!("s.add({t}::from_str_radix(\"7f\", 16).map_or(1, |y| y.{}().swap_bytes() as u64));", w_order(order))),
        }
    }
    w.observe("x", t);
    w.line("s.add(b.iter().fold(0, |h, x| mix(h, *x as u64)));");
}

/// Method that converts a number to the byte order.
fn w_order(order: &str) -> &str {
    if order == "be" { "to_be" } else { "to_le" }
}

/// Raw pointers: arithmetic, overlapping copies, swaps, lists linked by pointers.
pub fn pointers(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let len = w.within(4, 20);
    let array = w.array(of, len);
    w.line(format!("let mut a: [{t}; {len}] = {array};"));
    w.line("let p = a.as_mut_ptr();");
    w.line(format!("struct Link<'a> {{ x: {t}, next: Option<&'a Link<'a>> }}"));
    for _ in 0..w.within(2, 5) {
        let (word, at) = (w.word(), w.below(len / 2));
        match w.below(7) {
            0 => w.line(format!("unsafe {{ p.add(c.w({word}) as usize % {len}).write(p.add({at}).read().wrapping_mul(3)) }};")),
            1 => w.line(format!("unsafe {{ core::ptr::copy(p, p.add({at}), {len} - {at}) }};")),
            2 => w.line(format!("unsafe {{ core::ptr::swap(p.add({at}), p.add(c.w({word}) as usize % {len})) }};")),
            3 => w.line(format!("unsafe {{ core::ptr::swap_nonoverlapping(p, p.add({}), {}) }};", len - len / 2, len / 2)),
            4 => w.line(format!("{{ let (mut i, end) = (p, unsafe {{ p.add({len}) }}); while i < end {{ unsafe {{ *i ^= {at}; i = i.add(2).min(end); }} }} s.add(unsafe {{ end.offset_from(p) }} as u64); }}")),
            5 => w.line(format!("{{ let (d, f) = (Link {{ x: unsafe {{ *p }}, next: None }}, unsafe {{ *p.add({at}) }}); let e = Link {{ x: f, next: Some(&d) }}; let mut at = if c.w({word}) & 1 == 0 {{ Some(&e) }} else {{ Some(&d) }}; while let Some(link) = at {{ s.add(link.x as u64); at = link.next; }} }}")),
            _ => w.line(format!("{{ let view = unsafe {{ core::slice::from_raw_parts(p.cast::<u8>(), {}) }}; s.add(view.iter().fold(0, |h, b| mix(h, *b as u64))); }}", len * of.bits as usize / 8)),
        }
    }
    w.line(format!("for i in 0..{len} {{ s.add(unsafe {{ *p.add(i) }} as u64); }}"));
}
