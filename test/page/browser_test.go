//go:build e2e

package page_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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
	t               *testing.T
	binary, dir     string
	address, socket string
	plegd           *exec.Cmd
}

func newNode(t *testing.T) *node {
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
	n.start("simulate", "--socket", n.socket, "--pods", "40", "--churn", "0.05")
	n.until("the runtime listens", func() error { _, err := os.Stat(n.socket); return err })
	n.startPlegd()
	return n
}

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

func (n *node) startPlegd() {
	n.t.Helper()
	n.plegd = n.start("run", "--runtime-endpoint", n.socket, "--web.listen-address", n.address, "--kubelet-healthz-url=",
		"--control-socket", filepath.Join(n.dir, "plegd.sock"), "--state-dir", n.dir)
	n.awaitReason("healthy")
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
		answer, err := client.Get("http://" + n.address + "/healthz")
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
	b.run(chromedp.Navigate("http://" + n.address + "/"))
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
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	b.run(chromedp.FullScreenshot(&png, 100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
