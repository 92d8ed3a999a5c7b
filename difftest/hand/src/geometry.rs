//! Kernels that use crates of vectors, matrices and colors. Floating-point code has no sum of products, because a GPU
//! contracts those to FMAs.

use difftest_support::*;
use euclid::default::{Box2D, Point2D, Rect, Size2D, Vector2D};
use glam::{IVec3, UVec2, Vec3, Vec4, Vec4Swizzles};
use nalgebra::{Matrix3, SMatrix, Vector3, Vector4};
use rgb::{ComponentMap, RGB8, RGBA};

kernels! {
    /// `glam`: parts of vectors, integers, swizzles.
    glam_vectors(c, s) {
        let (a, b) = (Vec3::new(c.f32(1), c.f32(2), 0.5), Vec3::new(c.f32(3), 4.0, c.f32(5)));
        for x in (a + b).to_array() { s.add(bits32(x)); }
        for x in a.floor().to_array() { s.add(bits32(x)); }
        for x in (a % 1.25).to_array() { s.add(bits32(x)); }
        for x in (a / 3.0).to_array() { s.add(bits32(x)); }
        s.add(a.cmplt(b).bitmask() as u64);
        let w = Vec4::new(c.f32(6), 1.0, 2.0, c.f32(7)).wzyx();
        s.add(bits32(w.x) ^ bits32(w.w) << 20);
        let i = IVec3::new(c.w(8) as i16 as i32, c.w(9) as i16 as i32, 7);
        s.add(i.dot(IVec3::new(3, -5, 9)) as u64);
        s.add(i.cross(IVec3::Y).element_product() as u64);
        let u = UVec2::new(c.w(1) as u32, c.w(2) as u32);
        s.add(u.wrapping_mul(u).x as u64 ^ (u.saturating_add(u).y as u64) << 20 ^ u.min_element() as u64);
    }
    /// `nalgebra`: integers and one-term sums.
    nalgebra_matrices(c, s) {
        let m: Matrix3<i64> = Matrix3::from_fn(|i, j| (c.w((i * 3 + j) as u64) as i8).into());
        let v = Vector3::new(c.w(1) as i8 as i64, c.w(2) as i8 as i64, -3);
        let p = m * m.transpose() + Matrix3::identity() * 5;
        for x in p.iter() { s.add(*x as u64); }
        for x in (p * v).iter() { s.add(*x as u64); }
        s.add(m.trace() as u64 ^ v.dot(&v) as u64);
        let r: SMatrix<u32, 2, 4> = SMatrix::from_fn(|i, j| c.w((i + 2 * j) as u64) as u32);
        s.add(r.columns(1, 2).iter().fold(0, |h, x| mix(h, *x as u64)));
        let f = Vector4::new(c.f64(3), c.f64(4), 1.0, 2.0);
        for x in (f * 2.0).iter() { s.add(bits64(*x)); }
        s.add(bits64(f.max() + 0.0));
    }
    /// `euclid`.
    euclid_boxes(c, s) {
        let (p, q) = (Point2D::new(c.w(1) as i16 as i32, c.w(2) as i16 as i32), Point2D::new(c.w(3) as i16 as i32, c.w(4) as i16 as i32));
        let a = Box2D::from_points([p, q]);
        let b = Box2D::new(Point2D::new(-100, -200), Point2D::new(3000, 4000));
        s.add(a.intersection(&b).map_or(1, |x| x.area() as u64));
        s.add(a.union(&b).width() as u64);
        let r = Rect::new(p, Size2D::new(10, 20)).translate(Vector2D::new(5, -5)).inflate(3, 4);
        s.add(r.max_x() as u64 ^ (r.contains(q) as u64) << 40);
        s.add(p.to_vector().cross(q.to_vector()) as u64);
        let f = Point2D::new(c.f32(5), c.f32(6)).round();
        s.add(bits32(f.x) ^ bits32(f.y) << 16);
    }
    /// `rgb`.
    rgb_colors(c, s) {
        let color = RGB8::new(c.w(1) as u8, c.w(2) as u8, c.w(3) as u8);
        let dark = color.map(|x| x / 3);
        s.add(dark.r as u64 ^ (dark.g as u64) << 8 ^ (dark.b as u64) << 16);
        let other = RGBA::new(1u16, c.w(4) as u16, 3, 4).map(|x| x.rotate_left(3));
        s.add(other.g as u64 ^ other.a as u64);
    }
}
