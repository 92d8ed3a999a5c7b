//! `nbody`: one step of all-pairs gravity.

use glam::{Vec3A, Vec4};
use gpu_std::math;
use gpu_std::prelude::*;

/// Maximum threads per block, and number of bodies in a shared-memory tile.
pub const TILE: usize = 256;

/// Moves every body by one time step `dt`, with a gravitational constant of 1.
///
/// `velocities[i]` becomes the velocity after the step and `moved[i]` the new position. `softening` is a length that
/// keeps the force finite between bodies at the same position. The launch needs one thread per body. Bodies beyond the
/// launch's threads or beyond the shortest of the four arrays are unchanged.
///
/// A block loads the bodies in tiles into shared memory, so that each is read from global memory once per block instead
/// of once per thread.
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
    // Every thread of a block makes the same number of rounds, even without a body: all threads must reach the
    // barriers.
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
