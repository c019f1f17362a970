//go:build e2e

package page_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

const (
	// pictureWidth and phonePicture are the widths of the pictures in docs.
	pictureWidth, pictureHeight = 1280, 700
	phonePicture                = 390
	// firstScreen and phoneScreen are the heights of pictures of the top of a page.
	firstScreen, phoneScreen = 950, 1250

	shimEnv = "PLEGD_PAGE_SHIM"
)

// TestMain runs the tests, or is a process that stands for a shim.
func TestMain(m *testing.M) {
	if os.Getenv(shimEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
		return
	}
	os.Exit(m.Run())
}

// sandbox returns the id of a pod's sandbox, of which plegd logs each change.
func (n *node) sandbox() (id string) {
	n.t.Helper()
	n.until("plegd logs a pod's sandbox", func() error {
		b, err := os.ReadFile(filepath.Join(n.dir, "run.log"))
		for line := range strings.Lines(string(b)) {
			var event struct {
				ID      string `json:"container_id"`
				Sandbox bool
			}
			if json.Unmarshal([]byte(line), &event) == nil && event.Sandbox && event.ID != "" {
				id = event.ID
				return nil
			}
		}
		return errors.Join(err, errors.New("no line of one"))
	})
	return id
}

// stopShim starts a process that looks like the shim of a sandbox, and stops it.
func (n *node) stopShim(sandbox string) *exec.Cmd {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	path := filepath.Join(n.dir, "containerd-shim-runc-v2")
	if err := os.Link(self, path); err != nil {
		b, readErr := os.ReadFile(self) // another file system
		if err := errors.Join(readErr, os.WriteFile(path, b, 0o755)); err != nil {
			n.t.Fatal(err)
		}
	}
	shim := exec.Command(path, "-namespace", "k8s.io", "-id", sandbox, "-address", n.socket)
	shim.Env = []string{shimEnv + "=1"}
	shim.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := shim.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := shim.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = shim.Process.Signal(syscall.SIGCONT)
		_ = in.Close()
		_ = shim.Wait()
	})
	if err := shim.Process.Signal(syscall.SIGSTOP); err != nil {
		n.t.Fatal(err)
	}
	return shim
}

// TestPictures walks through the states of a node, checks that each page fits and can be
// read, and makes the pictures in docs.
func TestPictures(t *testing.T) {
	starting := bareNode(t)
	starting.startRuntime("--pods", "40", "--failpoints", "ListContainers=hang")
	starting.startPlegd()
	first := newBrowser(t, starting, pictureWidth, pictureHeight, "light")
	first.await("h1", listStall)
	first.fits()
	if got := first.evaluate("document.body.className"); got != "starting" {
		t.Errorf("the verdict is %s", got)
	}
	first.top("page-starting", firstScreen)

	n := bareNode(t)
	n.names = true
	n.startRuntime("--pods", "40")
	n.startPlegd("--relist-threshold=30s") // not to wait three minutes for NotReady
	light := newBrowser(t, n, pictureWidth, pictureHeight, "light")
	dark := newBrowser(t, n, pictureWidth, pictureHeight, "dark")
	phone := newBrowser(t, n, phonePicture, 844, "light")
	all := []*browser{light, dark, phone}
	// A reason of severity info may stand in the headline of a healthy node.
	await := func(state, headline string) {
		t.Helper()
		for _, b := range all {
			b.until("the page says "+state+" "+headline, func() error {
				if got := b.evaluate("document.body.className + ' ' + document.querySelector('h1').textContent"); !strings.HasPrefix(got, state+" "+headline) {
					return errors.New(got)
				}
				return nil
			})
			b.fits()
			if low := b.evaluate(contrasts); low != "" {
				t.Errorf("%s: text that is hard to read:\n%s", state, low)
			}
		}
	}
	await("healthy", "")
	light.top("page-healthy", firstScreen)

	sandbox := n.sandbox()
	shim := n.stopShim(sandbox)
	light.until("plegd sees the shim", func() error {
		if text := light.text("#facts"); !strings.Contains(text, fmt.Sprint(shim.Process.Pid)) {
			return errors.New(text)
		}
		return nil
	})
	n.failpoints("ListContainers=hang;ContainerStatus=1*hang")
	await("degraded", "ShimStuck")
	// The chain leads from the kubelet to the stopped shim.
	for _, b := range all {
		b.until("the chain is drawn", func() error {
			got := b.evaluate(`[...document.querySelectorAll(".chain li")].map((li) => li.textContent.replace(/\s+/g, " ").trim()).join(" -> ")`)
			for _, want := range []string{"kubelet", "call list_containers", "container", "culprit", fmt.Sprintf("pid %d", shim.Process.Pid)} {
				if !strings.Contains(got, want) {
					return fmt.Errorf("no %q in %q", want, got)
				}
			}
			return nil
		})
		b.fits()
	}
	light.shot("page-degraded")
	dark.top("page-dark", firstScreen)
	phone.top("page-phone", phoneScreen)

	await("unhealthy", "ShimStuck")
	light.until("the node is NotReady by the model", func() error {
		if got := light.text(".clock"); !strings.Contains(got, "by the model of the kubelet") {
			return errors.New(got)
		}
		return nil
	})
	light.fits()
	light.top("page-unhealthy", firstScreen)

	if err := shim.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	n.failpoints("")
	await("healthy", "")
	for _, b := range all {
		b.open(chromedp.Evaluate(`document.querySelector("#incidents ~ table a").click()`, nil))
		if got := b.evaluate("document.title"); !strings.HasPrefix(got, "unhealthy: ") {
			t.Errorf("the page of the incident says %q", got)
		}
		b.fits()
		if low := b.evaluate(contrasts); low != "" {
			t.Errorf("text that is hard to read on the incident's page:\n%s", low)
		}
		text := b.text("body")
		for _, want := range []string{"Predicted: NotReady for ", "is no longer in state T", "What ended it", "What happened when", "predicted by plegd's model", fmt.Sprintf("pid %d", shim.Process.Pid)} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q on the incident's page:\n%s", want, text)
			}
		}
		if b == light {
			b.shot("incident")
		}
	}
}
