//! Pictures of the flow as PNG files.

use std::fs::File;
use std::io::BufWriter;

use png::{ColorType, Encoder, EncodingError};

/// Writes a picture, which is animated if it has several frames.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(file: File, [width, height]: [usize; 2], frames: &[Vec<u8>]) -> Result<(), EncodingError> {
    let mut encoder = Encoder::new(BufWriter::new(file), width as u32, height as u32);
    encoder.set_color(ColorType::Rgb);
    if frames.len() > 1 {
        encoder.set_animated(frames.len() as u32, 0)?;
        encoder.set_frame_delay(1, 25)?;
    }
    let mut writer = encoder.write_header()?;
    frames.iter().try_for_each(|frame| writer.write_image_data(frame))?;
    writer.finish()
}

/// Returns the colors of the vorticity in a layer: red is counterclockwise, blue is clockwise, and solids are black.
/// Colors are full from `range` on.
pub fn vorticity(width: usize, layer: &[[f32; 4]], range: f32) -> Vec<u8> {
    let height = layer.len() / width;
    let at = |x: usize, y: usize| layer[y % height * width + x % width];
    let color = |i: usize| {
        // The first row of a picture is the top.
        let (x, y) = (i % width, height - 1 - i / width);
        if at(x, y)[1..] == [0.0; 3] {
            return [0; 3];
        }
        let across = at(x + 1, y)[2] - at(x + width - 1, y)[2];
        let along = at(x, y + 1)[1] - at(x, y + height - 1)[1];
        let value = ((across - along) / (2.0 * range)).clamp(-1.0, 1.0);
        let pale = (255.0 * (1.0 - value.abs())) as u8;
        if value > 0.0 { [255, pale, pale] } else { [pale, pale, 255] }
    };
    (0..layer.len()).flat_map(color).collect()
}
