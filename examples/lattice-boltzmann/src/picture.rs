//! Pictures of the flow, as PNG files, with an animation if there are several.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use png::{BitDepth, ColorType, Encoder, EncodingError, Writer};

/// A PNG file that frames are added to.
pub struct Picture(Writer<BufWriter<File>>);

impl Picture {
    /// Creates the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn create(path: &Path, [width, height]: [usize; 2], frames: u32) -> Result<Self, EncodingError> {
        let file = BufWriter::new(File::create(path)?);
        let mut encoder = Encoder::new(file, width as u32, height as u32);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        if frames > 1 {
            encoder.set_animated(frames, 0)?;
            encoder.set_frame_delay(1, 25)?;
        }
        Ok(Self(encoder.write_header()?))
    }

    /// Adds the vorticity of a layer: red counterclockwise, blue clockwise, black solid. `range` has the full color.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn add(&mut self, width: usize, layer: &[[f32; 4]], range: f32) -> Result<(), EncodingError> {
        let height = layer.len() / width;
        let at = |x: usize, y: usize| layer[y % height * width + x % width];
        let color = |i: usize| {
            // Rows of a picture are from the top.
            let (x, y) = (i % width, height - 1 - i / width);
            let [_, u, v, _] = at(x, y);
            if u == 0.0 && v == 0.0 {
                return [0; 3];
            }
            let across = at(x + 1, y)[2] - at(x + width - 1, y)[2];
            let along = at(x, y + 1)[1] - at(x, y + height - 1)[1];
            let value = ((across - along) / (2.0 * range)).clamp(-1.0, 1.0);
            let pale = (255.0 * (1.0 - value.abs())) as u8;
            if value > 0.0 { [255, pale, pale] } else { [pale, pale, 255] }
        };
        self.0.write_image_data((0..layer.len()).flat_map(color).collect::<Vec<u8>>().as_slice())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn finish(self) -> Result<(), EncodingError> {
        self.0.finish()
    }
}
