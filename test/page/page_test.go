//go:build e2e

// Package page_test looks at plegd's page with a real Chromium: through a fault
// and back, on a phone, in the dark, without scripts, and with the keyboard. It
// is a module of its own, so that the browser's driver is no dependency of
// the daemon. `make e2e-observe` runs it.
package page_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/plegd/plegd/test/lab"
)

const (
	desktopWidth, desktopHeight = 1280, 700
	phoneWidth, phoneHeight     = 360, 740
	// firstScreen and phoneScreen are the heights of pictures of the top of a page.
	firstScreen, phoneScreen = 950, 1250

	listStall = "RuntimeListStall"
	well      = "All is well"

	// verdict is the state and the headline, as the page has them.
	verdict = `document.body.className + " " + document.querySelector("h1").textContent`
)

// TestFaultAndBack follows a list that hangs, a plegd that ends and starts again, and a list
// that comes back, on one page that is never loaded again.
func TestFaultAndBack(t *testing.T) {
	n := newNode(t, "")
	b := newBrowser(t, n, desktopWidth, desktopHeight, "light")
	b.await(verdict, "healthy "+well)
	b.run(chromedp.Evaluate(`window.mark = "same page"; document.querySelector("footer a").focus()`, nil))
	n.Fail("ListContainers=hang")
	b.await(verdict, "degraded "+listStall)
	if text := b.text("body"); !strings.Contains(text, "list_containers unanswered") || !strings.Contains(text, "Look for a shim or a runc") {
		t.Errorf("neither the evidence nor what to do is on the page:\n%s", text)
	}
	if got := b.text("#spoken"); got != "degraded: "+listStall {
		t.Errorf("the text for a screen reader is %q", got)
	}
	first := b.text(".big")
	b.await(`document.querySelector(".big").textContent !== `+fmt.Sprintf("%q", first), "true") // the countdown
	b.await(`document.querySelectorAll("rect.now").length > 0`, "true")

	b.complains = true // about what cannot be fetched
	ended := b.evaluate(`document.querySelectorAll("rect.ended").length`)
	n.Stop()
	b.await(`document.querySelector("#stale").checkVisibility() + ", " + document.body.className + ", " + document.title`, "true, gone, no answer - ")
	b.shot("page-gone", firstScreen)
	n.Start()
	b.await(`document.querySelector("#stale").checkVisibility()`, "false")
	if got := b.evaluate(`document.querySelectorAll("rect.ended").length >= ` + ended); got != "true" {
		t.Error("the plot has lost the time before plegd was started again")
	}

	n.Fail("")
	b.await(verdict, "healthy "+well)
	b.await(`document.querySelector("#incidents").closest("section").textContent.includes("`+listStall+`")`, "true")
	if got := b.evaluate(`window.mark + ", " + (document.activeElement === document.querySelector("footer a"))`); got != "same page, true" {
		t.Errorf("the page was loaded again, or lost the focus: %s", got)
	}
}

// TestWithoutScripts: a browser that runs no scripts shows the same, and loads it again.
func TestWithoutScripts(t *testing.T) {
	n := newNode(t, "ListContainers=hang")
	b := newBrowser(t, n, phoneWidth, phoneHeight, "light", emulation.SetScriptExecutionDisabled(true))
	for _, headline := range []string{listStall, well} {
		b.until("the headline is "+headline, func() error {
			if names := b.ax(); !names["heading "+headline] {
				return fmt.Errorf("there is %v", names)
			}
			return nil
		})
		n.Fail("")
	}
}

// TestKeyboardAndScreenReader uses the page without a mouse and without sight.
func TestKeyboardAndScreenReader(t *testing.T) {
	n := newNode(t, "")
	n.AwaitState(limit, "healthy")
	n.Fail("ListContainers=hang")
	b := newBrowser(t, n, desktopWidth, desktopHeight, "light")
	b.await(verdict, "degraded "+listStall)
	names := b.ax()
	for _, want := range []string{
		"heading " + listStall, "heading Evidence", "heading What to do", "heading The last 10 minutes", "heading Current state", "region Evidence",
		"region Calls to the runtime", "status ", "meter age of the last successful relist, against the threshold", "main ", "navigation Links",
		"columnheader Call", "columnheader In flight", "rowheader list_containers",
	} {
		if !names[want] {
			t.Errorf("a screen reader finds no %s", want)
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(names)), func(name string) bool {
		return strings.HasPrefix(name, "image ") && strings.Contains(name, "under way for")
	}) {
		t.Error("the plot tells nothing to a screen reader")
	}
	// Tab reaches everything that can be used, and shows the focus.
	seen := map[string]bool{}
	var want int
	b.run(chromedp.Evaluate(`document.querySelectorAll("a, button, [tabindex]").length`, &want))
	for range want {
		b.run(chromedp.KeyEvent("\t"))
		at := b.evaluate(`(() => { const a = document.activeElement; return a.matches(":focus-visible") && getComputedStyle(a).outlineStyle !== "none" ? a.tagName + a.getBoundingClientRect().x + " " + a.getBoundingClientRect().y + scrollY : "" })()`)
		if at == "" {
			t.Fatalf("after %d of %d the focus is nowhere", len(seen), want)
		}
		seen[at] = true
	}
	if len(seen) != want {
		t.Errorf("Tab reaches %d of %d: %v", len(seen), want, seen)
	}
}

// stopShim starts a process that looks like the shim of one of the runtime's sandboxes, of
// which plegd logs each change, and stops it.
func stopShim(t *testing.T, n *node) *exec.Cmd {
	t.Helper()
	sandbox := ""
	lab.Eventually(t, limit, "plegd logs a sandbox", func() error {
		for _, line := range n.Log.Since(0) {
			if is, _ := line.Fields["sandbox"].(bool); is {
				sandbox = line.String("container_id")
				return nil
			}
		}
		return fmt.Errorf("no line of one")
	})
	self, err := os.Executable()
	lab.Must(t, err)
	path := filepath.Join(lab.Dir(t), "containerd-shim-runc-v2")
	lab.Must(t, os.Symlink(self, path))
	shim := exec.Command(path, "-namespace", "k8s.io", "-id", sandbox, "-address", n.Socket)
	shim.Env = []string{shimEnv + "=1"}
	shim.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if _, err := shim.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	lab.Must(t, shim.Start())
	t.Cleanup(func() { _ = shim.Process.Kill(); _ = shim.Wait() })
	lab.Must(t, shim.Process.Signal(syscall.SIGSTOP))
	return shim
}

// TestPictures goes through the states of a node on a screen by day and by night, and on a
// phone: everything fits and can be read. It makes the pictures in docs.
func TestPictures(t *testing.T) {
	starting := newBrowser(t, newNode(t, "ListContainers=hang"), desktopWidth, desktopHeight, "light")
	starting.await(verdict, "starting "+listStall)
	starting.looks()
	starting.shot("page-starting", firstScreen)

	n := newNode(t, "", "--relist-threshold=30s") // not to wait three minutes for NotReady
	light := newBrowser(t, n, desktopWidth, desktopHeight, "light")
	dark := newBrowser(t, n, desktopWidth, desktopHeight, "dark")
	phone := newBrowser(t, n, phoneWidth, phoneHeight, "light")
	all := []*browser{light, dark, phone}
	await := func(want string) {
		t.Helper()
		for _, b := range all {
			b.await(verdict, want)
			b.looks()
		}
	}
	await("healthy ") // a reason of severity info may be the headline
	light.shot("page-healthy", firstScreen)

	shim := stopShim(t, n)
	pid := fmt.Sprintf("pid %d", shim.Process.Pid)
	await("degraded ShimStuck")
	n.Fail("ListContainers=hang;ContainerStatus=1*hang")
	for _, b := range all {
		b.until("the chain is drawn", func() error {
			got := strings.Join(strings.Fields(b.text(".chain")), " ")
			for _, want := range []string{"kubelet", "list_containers", "container", "culprit", pid} {
				if !strings.Contains(got, want) {
					return fmt.Errorf("no %q in %q", want, got)
				}
			}
			return nil
		})
		b.looks()
	}
	light.shot("page-degraded", wholePage)
	dark.shot("page-dark", firstScreen)
	phone.shot("page-phone", phoneScreen)
	await("unhealthy ShimStuck")
	light.await(`document.querySelector(".clock").textContent.includes("by the model of the kubelet")`, "true")
	light.shot("page-unhealthy", firstScreen)

	lab.Must(t, shim.Process.Signal(syscall.SIGCONT))
	n.Fail("")
	await("healthy ")
	for _, b := range all {
		if _, err := chromedp.RunResponse(b.ctx, chromedp.Evaluate(`document.querySelector("td").closest("main").querySelector('a[href^="/incidents/"]').click()`, nil)); err != nil {
			t.Fatal(err)
		}
		b.await("document.title", "unhealthy: ")
		b.looks()
		text := b.text("body")
		for _, want := range []string{"NotReady for ", "by the model of the kubelet", "is no longer stopped", "What ended it", "What happened when", pid} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q on the incident's page:\n%s", want, text)
			}
		}
	}
	light.shot("incident", wholePage)
}
