//! HTML reports in a real browser: nothing fails, nothing is wider than a phone, everything can be read in both schemes,
//! and the filter and the sorting work.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::scan::{build, scan};

/// What runs beside the page, which is in a frame of 400 pixels: it looks, and leaves JSON as the document's only text.
const LOOK: &str = r##"
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  const inside = frame.contentDocument, view = frame.contentWindow;
  const told = { errors: view.errors || [] };
  try {
    told.width = inside.documentElement.scrollWidth;
    const channel = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    const rgba = (text) => text.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const behind = (node) => {
      for (let at = node; at instanceof view.Element; at = at.parentElement) {
        const colour = rgba(view.getComputedStyle(at).backgroundColor);
        if (colour.length < 4 || colour[3] > 0) return colour;
      }
      return [255, 255, 255];
    };
    const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05); };
    told.background = rgba(view.getComputedStyle(inside.body).backgroundColor);
    let least = [99, ""];
    for (const node of inside.querySelectorAll("h1, h2, p, li, th, td, figcaption, label, svg text")) {
      if (!node.textContent.trim()) continue;
      const style = view.getComputedStyle(node);
      const svg = node instanceof view.SVGElement;
      const rect = svg && node.parentElement.querySelector(":scope > rect.span");
      const ground = rect ? rgba(view.getComputedStyle(rect).fill) : behind(node);
      const ratio = contrast(rgba(svg ? style.fill : style.color), ground);
      if (ratio < least[0]) least = [ratio, node.outerHTML.slice(0, 200)];
    }
    told.contrast = least;
    told.figures = inside.querySelectorAll("figure svg").length;
    told.focusable = inside.querySelectorAll("svg g[tabindex]").length;
    told.names = Array.from(inside.querySelectorAll("svg g title"), (t) => t.textContent);
    told.script = inside.querySelectorAll("svg script, td script, b").length;
    const box = Array.from(inside.querySelectorAll(".wide")).find((b) => b.querySelectorAll("tbody tr").length >= 8);
    if (box) {
      const shown = () => Array.from(box.querySelectorAll("tbody tr")).filter((r) => !r.hidden);
      const input = box.previousElementSibling.querySelector("input");
      told.rows = shown().length;
      input.value = "counter_3";
      input.dispatchEvent(new view.Event("input"));
      told.filtered = shown().map((r) => r.textContent.includes("counter_3"));
      input.value = "";
      input.dispatchEvent(new view.Event("input"));
      const heads = Array.from(box.querySelectorAll("th"));
      const column = heads.findIndex((h) => h.textContent === "object");
      heads[column].querySelector("button").click();
      told.sort = heads[column].getAttribute("aria-sort");
      told.sorted = shown().map((r) => r.cells[column].textContent);
    }
  } catch (error) { told.errors.push(String(error)); }
  document.body.textContent = JSON.stringify(told);
});
"##;

/// The page as a browser shows it, in light and in dark.
fn looked_at(arguments: &[&str]) -> [Value; 2] {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_straddle"));
    let out = command.args(arguments).args(["--format", "html"]).output().unwrap();
    assert!(out.stdout.ends_with(b"</html>\n"), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = out.stdout;
    let catch = "<head><script>errors = []; addEventListener('error', (e) => errors.push(e.message));</script>";
    let text = String::from_utf8(text).unwrap().replacen("<head>", catch, 1);
    let quoted = text.replace('&', "&amp;").replace('"', "&quot;");
    let mut harness = String::new();
    let frame = "style=\"width: 400px; height: 800px; border: 0\"";
    write!(
        harness,
        "<!DOCTYPE html><meta charset=utf-8><body><iframe {frame} srcdoc=\"{quoted}\"></iframe><script>{LOOK}</script>"
    )
    .unwrap();
    let path = folder.path().join("harness.html");
    std::fs::write(&path, harness).unwrap();
    // 0 is dark, 1 is light.
    [1, 0].map(|scheme| browse(&path, scheme))
}

fn browse(path: &Path, scheme: u8) -> Value {
    let profile = tempfile::tempdir().unwrap();
    let out = Command::new("chromium-headless-shell")
        .args(["--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=5000", "--enable-logging=stderr"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap_or_else(|e| panic!("chromium-headless-shell: {e}"));
    let (dom, log) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(!log.contains(":CONSOLE"), "{log}");
    let told = dom.rsplit_once("<body>").and_then(|(_, rest)| rest.split_once("</body>")).map(|(told, _)| told);
    let told = told.unwrap_or_default().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&told).unwrap_or_else(|e| panic!("{e}: {told}\n{log}"))
}

fn readable(told: &[Value; 2]) {
    for one in told {
        assert_eq!(one["errors"], Value::Array(vec![]), "{one}");
        assert!(one["width"].as_f64().unwrap() <= 400.0, "as wide as {}", one["width"]);
        assert!(one["contrast"][0].as_f64().unwrap() >= 4.5, "{}", one["contrast"]);
        assert_eq!(one["script"], 0);
    }
    let [light, dark] = told.each_ref().map(|one| one["background"][0].as_f64().unwrap());
    assert!(light > 200.0 && dark < 50.0, "{light} {dark}");
}

#[test]
fn a_scan_in_a_browser() {
    let counters: String = (0..40).map(|i| format!("volatile int counter_{i}; long lock_{i}[7] = {{1}};")).collect();
    let source = format!(
        "{counters} char hostile[60] __asm__(\"\\\"<script>alert(1)</script><b>'&\\\"\") = {{1}}; int main(void) {{ counter_3++; return 0; }}"
    );
    let built = build("a.c", &source, &["-g", "-O1"]);
    let findings = scan(&built.path).findings.len();
    assert!(findings >= 30, "{findings}");
    let told = looked_at(&["scan", built.path.to_str().unwrap()]);
    readable(&told);
    let one = &told[0];
    assert!(one["figures"].as_u64().unwrap() >= 10 && one["focusable"].as_u64().unwrap() >= 20, "{one}");
    let names = one["names"].as_array().unwrap();
    assert!(names.iter().any(|n| n.as_str().unwrap().starts_with("<script>alert(1)</script><b>'&")), "{names:?}");
    assert_eq!(one["rows"].as_u64().unwrap() as usize, findings);
    let filtered = one["filtered"].as_array().unwrap();
    assert!(!filtered.is_empty() && filtered.len() < findings);
    assert!(filtered.iter().all(|f| f == true));
    let sorted: Vec<&str> = one["sorted"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    let place = |name: &str| sorted.iter().position(|n| *n == name);
    assert!(place("lock_9") < place("lock_10") && one["sort"] == "ascending", "{sorted:?}");
}

#[test]
fn a_type_and_verdicts_in_a_browser() {
    let source = "struct of { int tag; volatile long hits; char rest[80]; volatile int more; } x; int main(void) { return x.tag; }";
    let built = build("a.c", source, &["-g"]);
    let told = looked_at(&["type", built.path.to_str().unwrap(), "of"]);
    readable(&told);
    let names = told[0]["names"].as_array().unwrap();
    let of = |member: &str| names.iter().filter(|n| n.as_str().unwrap().starts_with(member)).count();
    assert_eq!((of("tag"), of("rest"), of("more")), (1, 2, 1), "{names:?}");
    for (record, figures) in [("every-group", 1), ("sweep", 2)] {
        let told = looked_at(&["verdict", &format!("tests/fuzz/seeds/record/{record}.record")]);
        readable(&told);
        assert!(told[0]["figures"].as_u64().unwrap() >= figures, "{record}: {}", told[0]);
    }
}
