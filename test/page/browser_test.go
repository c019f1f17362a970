//go:build e2e

package page_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// node is a plegd beside a fake runtime.
type node struct {
	t *testing.T
	// names is true where the page demands a password, and shows names.
	names           bool
	simulate        *exec.Cmd
	binary, dir     string
	address, socket string
	plegd           *exec.Cmd
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := bareNode(t)
	n.startRuntime("--pods", "40", "--churn", "0.05")
	n.startPlegd()
	n.awaitReason("healthy")
	return n
}

// bareNode is a node on which nothing runs yet.
func bareNode(t *testing.T) *node {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join("..", "..", "build", "plegd"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v: make build", err)
	}
	// Not t.TempDir: a socket's path has to be short.
	dir, err := os.MkdirTemp("", "plegd-page-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, binary: binary, dir: dir, address: l.Addr().String(), socket: filepath.Join(dir, "runtime.sock")}
	_ = l.Close()
	return n
}

func (n *node) startRuntime(args ...string) {
	n.t.Helper()
	n.simulate = n.start(append([]string{"simulate", "--socket", n.socket}, args...)...)
	n.until("the runtime listens", func() error { _, err := os.Stat(n.socket); return err })
}

// webConfig demands the password "page" of the user "page".
const webConfig = "basic_auth_users:\n  page: $2a$04$RrANjpofzGHE.eFQXFuHCu1Asio6MN94OcVRP/VCY0Wb4N5bCJGw.\n"

// start starts a command of plegd that ends with the test.
func (n *node) start(args ...string) *exec.Cmd {
	n.t.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, args[0]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(n.binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

func (n *node) startPlegd(more ...string) {
	n.t.Helper()
	args := []string{
		"run", "--runtime-endpoint", n.socket, "--web.listen-address", n.address, "--kubelet-healthz-url=", "--log.level=debug", "--log.format=json",
		"--control-socket", n.control(), "--state-dir", n.dir,
	}
	if n.names {
		config := filepath.Join(n.dir, "web.yml")
		if err := os.WriteFile(config, []byte(webConfig), 0o600); err != nil {
			n.t.Fatal(err)
		}
		args = append(args, "--web.config.file", config)
	}
	n.plegd = n.start(append(args, more...)...)
}

func (n *node) control() string { return filepath.Join(n.dir, "plegd.sock") }

// url is the address of a page, with the password where one is needed.
func (n *node) url(path string) string {
	if n.names {
		return "http://page:page@" + n.address + path
	}
	return "http://" + n.address + path
}

func (n *node) stopPlegd() {
	n.t.Helper()
	_ = n.plegd.Process.Signal(syscall.SIGTERM)
	if err := n.plegd.Wait(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) failpoints(spec string) {
	n.t.Helper()
	if out, err := exec.Command(n.binary, "simulate", "failpoints", "--socket", n.socket, spec).CombinedOutput(); err != nil {
		n.t.Fatalf("failpoints %q: %v: %s", spec, err, out)
	}
}

// awaitReason waits until plegd says so.
func (n *node) awaitReason(reason string) {
	n.t.Helper()
	client := &http.Client{Timeout: 5 * time.Second}
	n.until("plegd says "+reason, func() error {
		answer, err := client.Get(n.url("/healthz"))
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		body := make([]byte, 200)
		read, _ := answer.Body.Read(body)
		if !strings.Contains(string(body[:read]), reason) {
			return errors.New(string(body[:read]))
		}
		return nil
	})
}

// until tries until it works.
func until(t *testing.T, what string, try func() error) {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s: %v", limit, what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (n *node) until(what string, try func() error) { n.t.Helper(); until(n.t, what, try) }

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
		if ci := os.Getenv("CI"); ci != "" && ci != "false" && ci != "0" {
			t.Fatal("chromium is not installed; see test/e2e/install-deps.sh")
		}
		t.Skip("SKIPPED: chromium is not installed; see test/e2e/install-deps.sh")
	}
	alloc, cancelAlloc := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(profile(t)),
		chromedp.WSURLReadTimeout(limit),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("disable-gpu", true))...)
	t.Cleanup(cancelAlloc)
	ctx, cancel := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); cancel() })
	b := &browser{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *cdplog.EventEntryAdded:
			b.complain(fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		case *runtime.EventExceptionThrown:
			b.complain(e.ExceptionDetails.Error())
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
		cdplog.Enable(),
		chromedp.EmulateViewport(width, height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
	}, actions...)...)
	b.run(chromedp.Navigate(n.url("/")))
	return b
}

// profile is a directory for the browser, which may go on writing there for a
// moment when it has been told to end.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plegd-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 20 {
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	return dir
}

func (b *browser) complain(s string) {
	if strings.Contains(s, "favicon.ico") {
		return // asked for by the browser, not by the page
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, s)
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// open makes an action that leads to another page, and waits until that is there: in
// between nothing can be evaluated.
func (b *browser) open(action chromedp.Action) {
	b.t.Helper()
	if _, err := chromedp.RunResponse(b.ctx, action); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) evaluate(expression string) string {
	b.t.Helper()
	var s string
	b.run(chromedp.Evaluate(expression, &s))
	return s
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return strings.TrimSpace(b.evaluate(fmt.Sprintf("document.querySelector(%q).textContent", selector)))
}

func (b *browser) shown(selector string, want bool) error {
	b.t.Helper()
	if got := b.evaluate(fmt.Sprintf("String(document.querySelector(%q).checkVisibility())", selector)); got != fmt.Sprint(want) {
		return fmt.Errorf("%s is shown: %s", selector, got)
	}
	return nil
}

// await waits until an element says exactly this.
func (b *browser) await(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s says %q", selector, text), func() error {
		if got := b.text(selector); got != text {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

func (b *browser) until(what string, try func() error) { b.t.Helper(); until(b.t, what, try) }

// shot keeps a picture of the whole page where SCREENSHOTS says so.
func (b *browser) shot(name string) { b.t.Helper(); b.top(name, math.MaxInt) }

// top is shot for the first pixels of the page.
func (b *browser) top(name string, height int) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture []byte
	b.run(chromedp.FullScreenshot(&picture, 100))
	small, err := shrink(picture, height)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), small, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// colours is how many colours a picture keeps, the most frequent ones: enough for text and
// surfaces, and a quarter of the bytes.
const colours = 64

// shrink cuts a picture and leaves it few colours.
func shrink(picture []byte, height int) ([]byte, error) {
	in, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(in.At(x, y)).(color.RGBA) }
	size := in.Bounds()
	size.Max.Y = min(size.Max.Y, height)
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	// A colour counts for more than a shade of grey.
	weight := func(c color.RGBA) int { return count[c] * (16 + int(max(c.R, c.G, c.B)-min(c.R, c.G, c.B))) }
	all := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return weight(b) - weight(a) })
	palette := make(color.Palette, 0, colours)
	for _, c := range all[:min(len(all), colours)] {
		palette = append(palette, c)
	}
	out := image.NewPaletted(size, palette)
	index := map[color.RGBA]uint8{}
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			c := at(x, y)
			i, ok := index[c]
			if !ok {
				i = uint8(palette.Index(c))
				index[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, out)
	return b.Bytes(), err
}
