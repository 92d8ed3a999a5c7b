//! `nbody`: one step of all bodies pulling on each other.

use glam::{Vec3A, Vec4};
use gpu_std::math;
use gpu_std::prelude::*;

/// The most threads a block may have, and the bodies of one shared-memory tile.
pub const TILE: usize = 256;

/// Moves every body by one time step `dt`, the gravitational constant being 1.
///
/// `velocities[i]` becomes the velocity after the step and `moved[i]` the new position. `softening` is a length
/// that keeps the force finite between bodies that meet. Needs one thread a body; bodies beyond the launch's
/// threads are left as they are, and so are those beyond the shortest of the four arrays.
///
/// A block reads the bodies in tiles into shared memory, so that each is read from global memory once a block
/// instead of once a thread.
#[kernel(launch_bounds(256))]
pub fn nbody(
    dt: f32,
    softening: f32,
    positions: &[Vec3A],
    masses: &[f32],
    mut velocities: DisjointMut<Vec3A>,
    mut moved: DisjointMut<Vec3A>,
) {
    let tile: *mut Vec4 = shared_array![Vec4; TILE];
    let bodies = positions.len().min(masses.len()).min(velocities.len()).min(moved.len());
    let threads = block::threads() as usize;
    let own = thread::linear_in_block() as usize;
    let index = thread::unique_index();

    let position = if index.get() < bodies { positions[index.get()] } else { Vec3A::ZERO };
    let mut acceleration = Vec3A::ZERO;
    let mut first = 0;
    // Every thread of a block makes the same rounds, also one without a body: all must meet at the barriers.
    while first < bodies {
        let other = first + own;
        if other < bodies {
            // SAFETY: `own` < threads <= TILE by the launch bounds, and no other thread writes this element.
            unsafe { tile.add(own).write(positions[other].extend(masses[other])) };
        }
        thread::sync_threads();
        let count = threads.min(bodies - first);
        for i in 0..count {
            // SAFETY: the first `count` elements were written before the barrier; no thread writes until the next.
            let body = unsafe { tile.add(i).read() };
            let offset = Vec3A::from_vec4(body) - position;
            let inverse = math::rsqrt(offset.length_squared() + softening * softening);
            acceleration += offset * (body.w * inverse * inverse * inverse);
        }
        thread::sync_threads();
        first += threads;
    }

    if index.get() < bodies
        && let (Some(velocity), Some(moved)) = (velocities.get_mut(index), moved.get_mut(index))
    {
        *velocity += acceleration * dt;
        *moved = position + *velocity * dt;
    }
}
