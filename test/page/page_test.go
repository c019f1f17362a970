//go:build e2e

// Package page_test looks at plegd's page with a real Chromium: through a fault
// and back, on a phone, in the dark, without scripts, and with the keyboard. It
// is a module of its own, so that what drives the browser is no dependency of
// the daemon. `make e2e-observe` runs it.
package page_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

const (
	desktopWidth, desktopHeight = 1280, 900
	phoneWidth, phoneHeight     = 360, 740

	listStall = "RuntimeListStall"
	well      = "All is well"
)

// TestFaultAndBack follows a list that hangs and comes back on one page that is
// never loaded again.
func TestFaultAndBack(t *testing.T) {
	n := newNode(t)
	b := newBrowser(t, n, desktopWidth, desktopHeight, "light")
	b.await("h1", well)
	b.run(chromedp.Evaluate(`window.mark = "same page"; document.querySelector("footer a").focus()`, nil))
	b.shot("healthy-light")

	n.failpoints("ListContainers=hang")
	b.await("h1", listStall)
	if text := b.text("#facts"); !strings.Contains(text, "list_containers unanswered") || !strings.Contains(text, "Look for a shim or a runc") {
		t.Errorf("neither the evidence nor what to do is on the page:\n%s", text)
	}
	if got := b.text("#spoken"); got != "degraded: "+listStall {
		t.Errorf("a screen reader is told %q", got)
	}
	// The countdown continues by itself.
	first := b.text(".clock .big")
	b.until("the countdown moves", func() error {
		if now := b.text(".clock .big"); now == first {
			return fmt.Errorf("it is still %s", now)
		}
		return nil
	})
	b.until("the relist under way is in the plot", func() error {
		if b.number(`document.querySelectorAll("rect.now").length`) < 1 {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	b.shot("fault-light")

	n.failpoints("")
	b.await("h1", well)
	b.await("#spoken", "healthy")
	b.until("the incident is in the list", func() error {
		got := b.evaluate(`(document.getElementById("incidents")?.closest("section").textContent) ?? ""`)
		if !strings.Contains(got, listStall) {
			return fmt.Errorf("the list says %q", got)
		}
		return nil
	})
	if got := b.evaluate(`window.mark + ", " + (document.activeElement === document.querySelector("footer a"))`); got != "same page, true" {
		t.Errorf("the page was loaded again, or lost the focus: %s", got)
	}
}

// TestPlegdGone has the page say that what it shows is old, and go on when
// plegd is back.
func TestPlegdGone(t *testing.T) {
	n := newNode(t)
	b := newBrowser(t, n, desktopWidth, desktopHeight, "light")
	b.await("h1", well)
	b.complains = true // about what cannot be fetched
	n.stopPlegd()
	b.until("the page says that plegd is gone", func() error { return b.shown("#stale", true) })
	if got := b.text("#stale"); !strings.Contains(got, "old") {
		t.Errorf("it says %q", got)
	}
	if got := b.evaluate("document.title + ', ' + document.body.className"); !strings.HasPrefix(got, "no answer - ") || !strings.HasSuffix(got, ", gone") {
		t.Errorf("the title and the colours are %q", got)
	}
	n.startPlegd()
	n.awaitReason("healthy")
	b.until("the page continues", func() error { return b.shown("#stale", false) })
	b.await("h1", well)
}

// TestSizes looks at the page on a phone and on a screen, by day and by night,
// with and without a fault: nothing is to be scrolled sideways, and all text is
// to be told from its background.
func TestSizes(t *testing.T) {
	n := newNode(t)
	for _, state := range []struct{ name, failpoints, headline string }{
		{"healthy", "", well}, {"fault", "ListContainers=hang", listStall},
	} {
		n.failpoints(state.failpoints)
		for _, scheme := range []string{"light", "dark"} {
			for _, size := range []struct {
				name          string
				width, height int64
			}{{"phone", phoneWidth, phoneHeight}, {"desktop", desktopWidth, desktopHeight}} {
				name := state.name + "-" + size.name + "-" + scheme
				t.Run(name, func(t *testing.T) {
					b := newBrowser(t, n, size.width, size.height, scheme)
					b.await("h1", state.headline)
					b.fits()
					back := b.number(`getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)`)
					if dark := back < 3*128; dark != (scheme == "dark") {
						t.Errorf("the background is of brightness %v in the %s", back, scheme)
					}
					if low := b.evaluate(contrasts); low != "" {
						t.Errorf("text that is hard to read:\n%s", low)
					}
					b.shot(name)
				})
			}
		}
	}
}

// TestWithoutScripts has the page tell the same to a browser that runs none.
func TestWithoutScripts(t *testing.T) {
	n := newNode(t)
	n.failpoints("ListContainers=hang")
	n.awaitReason(listStall)
	b := newBrowser(t, n, phoneWidth, phoneHeight, "light", emulation.SetScriptExecutionDisabled(true))
	b.awaitAX("heading", listStall)
	n.failpoints("")
	// It loads itself again.
	b.awaitAX("heading", well)
	b.shot("no-scripts")
}

// TestKeyboardAndScreenReader walks over the page as somebody does who sees
// nothing of it, and holds no mouse.
func TestKeyboardAndScreenReader(t *testing.T) {
	n := newNode(t)
	n.failpoints("ListContainers=hang")
	n.awaitReason(listStall)
	b := newBrowser(t, n, desktopWidth, desktopHeight, "light")
	b.await("h1", listStall)
	names := b.ax()
	for role, want := range map[string][]string{
		"heading": {listStall, "Evidence", "What to do", "The last 10 minutes", "Current state", "Calls to the runtime"},
		"region":  {"Evidence", "Calls to the runtime"},
		"status":  {""},
		"meter":   {"age of the last successful relist, against the threshold"},
		"main":    {""}, "navigation": {"What plegd serves"},
		"columnheader": {"Operation", "In flight"}, "rowheader": {"list_containers"},
	} {
		for _, name := range want {
			if !names[role+" "+name] {
				t.Errorf("a screen reader finds no %s %q", role, name)
			}
		}
	}
	for _, want := range []string{"under way for", "Verdict: "} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(names)), func(name string) bool {
			return strings.HasPrefix(name, "image ") && strings.Contains(name, want)
		}) {
			t.Errorf("no picture says %q to a screen reader", want)
		}
	}
	// Everything that can be used is reached by Tab, and shows that it was.
	want := int(b.number(`document.querySelectorAll("a, button, [tabindex]").length`))
	seen := map[string]bool{}
	for range want {
		b.run(chromedp.KeyEvent("\t"))
		at := b.evaluate(`(() => { const a = document.activeElement; return a.matches(":focus-visible") && getComputedStyle(a).outlineStyle !== "none" ? a.tagName + " " + (a.getAttribute("href") || a.getAttribute("aria-labelledby") || a.getAttribute("aria-label")) : "" })()`)
		if at == "" || strings.HasPrefix(at, "BODY") {
			t.Fatalf("after %d of %d the focus is nowhere", len(seen), want)
		}
		seen[at] = true
	}
	if len(seen) != want {
		t.Errorf("Tab reaches %d of %d: %v", len(seen), want, seen)
	}
}

// fits fails where something is wider than the screen, a cell or another element hides a
// part of its text, or the texts of the plot overlap.
func (b *browser) fits() {
	b.t.Helper()
	if wide := b.evaluate(overflows); wide != "" {
		b.t.Errorf("what does not fit:\n%s", wide)
	}
}

// overflows names what does not fit.
const overflows = `(() => {
  const out = new Set(), root = document.documentElement, width = root.clientWidth;
  const name = (e) => e.tagName + "." + (e.getAttribute("class") || e.id) + " " + e.textContent.trim().slice(0, 50);
  if (root.scrollWidth > width) out.add("the page is " + root.scrollWidth + " wide on a screen of " + width);
  for (const e of document.body.querySelectorAll("*")) {
    if (!e.checkVisibility() || e.closest(".unseen, title, script")) continue;
    const r = e.getBoundingClientRect();
    if (r.width && (r.left < -.5 || r.right > width + .5)) out.add(r.left + " to " + r.right + ": " + name(e));
    if (!e.closest("svg") && getComputedStyle(e).display !== "inline" && e.scrollWidth > e.clientWidth + 1) out.add(e.scrollWidth + " in " + e.clientWidth + ": " + name(e));
  }
  for (const t of document.querySelectorAll(".band text")) {
    if (t.getBoundingClientRect().width > t.previousElementSibling.getBoundingClientRect().width) out.add("wider than its band: " + name(t));
  }
  const ticks = [...document.querySelectorAll(".ticks text")].map((t) => [t.getBoundingClientRect(), t]);
  ticks.slice(1).forEach(([r, t], i) => { if (r.left < ticks[i][0].right + 2) out.add("on the one before: " + name(t)); });
  return [...out].join("\n");
})()`

// contrasts names the text whose contrast with its background is below the 4.5
// to 1 that WCAG wants (3 to 1 for large text).
const contrasts = `(() => {
  const rgb = (s) => s.match(/[\d.]+/g).map(Number);
  const lum = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const back = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const low = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.checkVisibility() || e.closest("script, meter, .unseen")) continue;
    const style = getComputedStyle(e), a = lum(rgb(style.color)), b = lum(back(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) low.add(ratio.toFixed(2) + " " + e.tagName + "." + e.className + ": " + walker.currentNode.data.trim().slice(0, 40));
  }
  return [...low].join("\n");
})()`

// ax returns what a screen reader finds, as "role name".
func (b *browser) ax() map[string]bool {
	b.t.Helper()
	names := map[string]bool{}
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		nodes, err := accessibility.GetFullAXTree().Do(ctx)
		for _, n := range nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			name := ""
			if n.Name != nil {
				name = strings.Trim(string(n.Name.Value), `"`)
			}
			names[strings.Trim(string(n.Role.Value), `"`)+" "+name] = true
		}
		return err
	}))
	return names
}

func (b *browser) awaitAX(role, name string) {
	b.t.Helper()
	b.until(fmt.Sprintf("there is a %s %q", role, name), func() error {
		if names := b.ax(); !names[role+" "+name] {
			return fmt.Errorf("there is %v", names)
		}
		return nil
	})
}

func (b *browser) number(expression string) float64 {
	b.t.Helper()
	v := math.NaN()
	b.run(chromedp.Evaluate(expression, &v))
	return v
}

const limit = 60 * time.Second
