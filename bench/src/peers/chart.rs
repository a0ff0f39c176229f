//! Bars as SVG: one panel for each distance, a group for each step, a bar for each tool, seconds on a logarithmic scale.

use std::fmt::Write as _;

/// Times of one step, by tool; `None` where a tool has nothing like it.
pub(super) struct Group {
    pub name: String,
    pub seconds: Vec<Option<f64>>,
}

/// Groups under a heading.
pub(super) struct Panel {
    pub title: String,
    pub groups: Vec<Group>,
}

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 60.0;
const HEIGHT: f64 = 260.0;
const COLOURS: [&str; 6] = ["#1b7f5c", "#3b6fb6", "#8fb3e0", "#e08a1e", "#c0392b", "#7d5ba6"];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{:.0} ms", value * 1000.0) } else { format!("{value:.1} s") }
}

/// The whole picture.
pub(super) fn svg(tools: &[&str], panels: &[Panel]) -> String {
    let all = || panels.iter().flat_map(|panel| &panel.groups).flat_map(|group| group.seconds.iter().flatten());
    let low = all().copied().fold(f64::INFINITY, f64::min).max(0.001).log10().floor();
    let high = all().copied().fold(0.01, f64::max).log10().ceil().max(low + 1.0);
    let step = HEIGHT + 90.0;
    let height = 60.0 + step * panels.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let mut x = LEFT;
    for (tool, colour) in tools.iter().zip(COLOURS) {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"16\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"26\">{}</text>",
            x + 18.0,
            escaped(tool)
        );
        x += 40.0 + 7.0 * tool.len() as f64;
    }
    for (n, panel) in panels.iter().enumerate() {
        let top = 70.0 + step * n as f64;
        let y = |value: f64| top + HEIGHT * (high - value.max(0.0001).log10()) / (high - low);
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{}\" font-size=\"14\" font-weight=\"bold\">{}</text>",
            top - 14.0,
            escaped(&panel.title)
        );
        let mut decade = low;
        while decade <= high {
            let value = 10f64.powf(decade);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                WIDTH - 10.0,
                LEFT - 6.0,
                y(value) + 4.0,
                seconds(value).replace(".0 s", " s"),
                at = y(value),
            );
            decade += 1.0;
        }
        let wide = (WIDTH - LEFT - 10.0) / panel.groups.len().max(1) as f64;
        for (k, group) in panel.groups.iter().enumerate() {
            let from = LEFT + wide * k as f64 + 8.0;
            let bar = (wide - 16.0) / tools.len().max(1) as f64;
            for (i, (value, colour)) in group.seconds.iter().zip(COLOURS).enumerate() {
                let Some(value) = value else { continue };
                let (x, at) = (from + bar * i as f64, y(*value));
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{at:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/><text x=\"{:.1}\" \
                     y=\"{:.1}\" font-size=\"8\" text-anchor=\"middle\">{}</text>",
                    bar - 2.0,
                    top + HEIGHT - at,
                    x + bar / 2.0 - 1.0,
                    at - 3.0,
                    seconds(*value),
                );
            }
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                from + wide / 2.0 - 8.0,
                top + HEIGHT + 18.0,
                escaped(&group.name)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_time_is_a_longer_bar_and_what_is_missing_has_none() {
        let groups = vec![Group { name: "a < b".to_owned(), seconds: vec![Some(0.05), Some(5.0), None] }];
        let text = svg(&["x", "y", "z"], &[Panel { title: "at 30 ms".to_owned(), groups }]);
        let bar = |colour: &str| {
            let line = text
                .lines()
                .find(|line| line.contains(colour) && line.contains("<text x") && !line.contains("y=\"16\""));
            let height = line?.split("height=\"").nth(1)?.split('"').next()?;
            height.parse::<f64>().ok()
        };
        let (short, long) = (bar(COLOURS[0]).unwrap(), bar(COLOURS[1]).unwrap());
        assert!(short > 0.0 && (long - short - HEIGHT * 2.0 / 3.0).abs() < 0.2, "two of three decades: {short} {long}");
        assert_eq!(bar(COLOURS[2]), None);
        assert!(text.contains("a &lt; b") && text.contains("at 30 ms") && !text.contains("NaN"));
    }
}
