//go:build e2e

package page_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/plegd/plegd/test/lab"
)

// limit is how long a wait lasts at most.
const limit = 60 * time.Second

// shimEnv makes a process of this test one that stands for a shim.
const shimEnv = "PLEGD_PAGE_SHIM"

// TestMain runs the tests with the plegd of `make build`.
func TestMain(m *testing.M) {
	if os.Getenv(shimEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
		return
	}
	_ = os.Setenv("PLEGD_BINARY", cmp.Or(os.Getenv("PLEGD_BINARY"), "../../build/plegd"))
	os.Exit(lab.Main(m))
}

// node is a plegd beside a fake runtime.
type node struct {
	*lab.Plegd
	*lab.Simulated
}

func newNode(t *testing.T, failpoints string, flags ...string) *node {
	t.Helper()
	s := lab.NewSimulated(t, "--pods=40", "--failpoints="+failpoints)
	return &node{lab.NewPlegd(t, s.Socket, lab.PlegdOptions{Flags: flags}), s}
}

// browser is a tab of a Chromium of its own that shows a node's page.
type browser struct {
	t   *testing.T
	ctx context.Context
	// complains is true once the test expects the browser to.
	complains bool

	mu         sync.Mutex
	complaints []string
}

func newBrowser(t *testing.T, n *node, width, height int64, scheme string, actions ...chromedp.Action) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("chromium is not installed; see test/e2e/install-deps.sh")
		}
		t.Skip("SKIPPED: chromium is not installed; see test/e2e/install-deps.sh")
	}
	alloc, cancelAlloc := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(limit),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("disable-gpu", true))...)
	t.Cleanup(cancelAlloc)
	ctx, cancel := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); cancel() })
	b := &browser{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		complaint := ""
		switch e := event.(type) {
		case *cdplog.EventEntryAdded:
			complaint = fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		case *runtime.EventExceptionThrown:
			complaint = e.ExceptionDetails.Error()
		}
		// The browser asks for the icon, not the page.
		if complaint != "" && !strings.Contains(complaint, "favicon.ico") {
			b.mu.Lock()
			b.complaints = append(b.complaints, complaint)
			b.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.complaints) > 0 && !b.complains {
			t.Errorf("the browser complains:\n%s", strings.Join(b.complaints, "\n"))
		}
	})
	b.run(append([]chromedp.Action{
		cdplog.Enable(), chromedp.EmulateViewport(width, height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
	}, actions...)...)
	b.run(chromedp.Navigate("http://" + n.Address + "/"))
	return b
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	lab.Must(b.t, chromedp.Run(b.ctx, actions...))
}

func (b *browser) evaluate(expression string) string {
	b.t.Helper()
	var s string
	b.run(chromedp.Evaluate("String("+expression+")", &s))
	return s
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return strings.TrimSpace(b.evaluate(fmt.Sprintf("document.querySelector(%q)?.textContent", selector)))
}

// await waits until an expression has a value that begins with this.
func (b *browser) await(expression, want string) {
	b.t.Helper()
	b.until(expression+" is "+want, func() error {
		if got := b.evaluate(expression); !strings.HasPrefix(got, want) {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func (b *browser) until(what string, try func() error) {
	b.t.Helper()
	lab.Eventually(b.t, limit, what, try)
}

// looks fails where the page does not fit, or where text is hard to read.
func (b *browser) looks() {
	b.t.Helper()
	if wide := b.evaluate(overflows); wide != "" {
		b.t.Errorf("what does not fit:\n%s", wide)
	}
	if low := b.evaluate(contrasts); low != "" {
		b.t.Errorf("text that is hard to read:\n%s", low)
	}
}

// overflows names elements that are wider than the screen or than their parent, and cells that wrap
// on a wide screen.
const overflows = `(() => {
  const out = new Set(), root = document.documentElement, width = root.clientWidth;
  const name = (e) => e.tagName + "." + (e.getAttribute("class") || e.id) + " " + e.textContent.trim().slice(0, 50);
  if (root.scrollWidth > width) out.add("the page is " + root.scrollWidth + " wide on a screen of " + width);
  for (const e of document.body.querySelectorAll("*")) {
    if (!e.checkVisibility() || e.closest(".unseen, title, script")) continue;
    const r = e.getBoundingClientRect();
    if (r.width && (r.left < -.5 || r.right > width + .5)) out.add(r.left + " to " + r.right + ": " + name(e));
    if (!e.closest("svg") && getComputedStyle(e).display !== "inline" && e.scrollWidth > e.clientWidth + 1) out.add(e.scrollWidth + " in " + e.clientWidth + ": " + name(e));
    if (width > 1200 && e.matches("th, td:not(.full)") && r.height > 40) out.add("wraps: " + name(e));
  }
  return [...out].join("\n");
})()`

// contrasts names the text whose contrast with its background is below the 4.5
// to 1 that WCAG wants (3 to 1 for large text).
const contrasts = `(() => {
  const rgb = (s) => s.match(/[\d.]+/g).map(Number);
  const lum = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const back = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const low = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
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

// shot keeps a picture of the page, or of its first pixels, where SCREENSHOTS says so.
func (b *browser) shot(name string, height int) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture []byte
	b.run(chromedp.FullScreenshot(&picture, 100))
	in, err := png.Decode(bytes.NewReader(picture))
	lab.Must(b.t, err)
	var out bytes.Buffer
	lab.Must(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, shrink(in, height)))
	lab.Must(b.t, os.WriteFile(filepath.Join(dir, name+".png"), out.Bytes(), 0o644))
}

// wholePage is a height for shot.
const wholePage = math.MaxInt

// shrink cuts a picture, and leaves it its most frequent colours: enough for text and
// surfaces, and a quarter of the bytes.
func shrink(in image.Image, height int) image.Image {
	size := in.Bounds()
	size.Max.Y = min(size.Max.Y, height)
	count := map[color.Color]int{}
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			count[in.At(x, y)]++
		}
	}
	palette := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	out := image.NewPaletted(size, palette[:min(len(palette), 256)])
	draw.Draw(out, size, in, size.Min, draw.Src)
	return out
}
