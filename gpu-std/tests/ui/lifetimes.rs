use gpu_std::prelude::*;

#[kernel]
fn bound<'a: 'static>(_x: &'a [f32]) {}

#[kernel]
fn clause<'a>(_x: &'a [f32])
where
    'a: 'static,
{
}

#[kernel]
fn longer<'a, 'b: 'a>(_x: &'a [f32], _y: &'b [f32]) {}

#[kernel]
fn reference_clause<'a>(_x: &'a [f32])
where
    &'a (): 'static,
{
}

#[kernel]
fn view<'a: 'static>(_y: DisjointMut<'a, f32>) {}

trait Long {}
impl Long for &'static [f32] {}

#[kernel]
fn by_trait<'a>(_x: &'a [f32])
where
    &'a [f32]: Long,
{
}

// Named lifetimes are accepted like elided ones.
#[kernel]
fn one_name<'a>(_x: &'a [f32], _y: &'a [f32], _z: DisjointMut<'a, f32>) {}

fn main() {}
