//go:build e2e

package page_test

import (
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
)

// terminal is a command in a real pty, and what its screen shows.
type terminal struct {
	t      *testing.T
	tty    *os.File
	screen vt10x.Terminal
	cmd    *exec.Cmd
	ended  chan struct{}
	mu     sync.Mutex
}

// watch starts plegd status --watch in a window.
func (n *node) watch(t *testing.T, columns, rows int) *terminal {
	t.Helper()
	cmd := exec.Command(n.binary, "status", "--watch", "--control-socket", n.control())
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)})
	if err != nil {
		t.Fatal(err)
	}
	w := &terminal{t: t, tty: tty, screen: vt10x.New(vt10x.WithSize(columns, rows)), cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		buf := make([]byte, 64<<10)
		for {
			got, err := tty.Read(buf)
			w.mu.Lock()
			_, _ = w.screen.Write(buf[:got])
			w.mu.Unlock()
			if err != nil { // EIO once the command has ended
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		<-w.ended
		_ = tty.Close()
	})
	return w
}

func (w *terminal) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.screen.String()
}

func (w *terminal) resize(columns, rows int) {
	w.t.Helper()
	w.mu.Lock()
	w.screen.Resize(columns, rows)
	w.mu.Unlock()
	if err := pty.Setsize(w.tty, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *terminal) press(keys string) {
	w.t.Helper()
	if _, err := w.tty.WriteString(keys); err != nil {
		w.t.Fatal(err)
	}
}

// await waits until the screen shows all of these, with the node's name on top: a line that
// is too wide would have scrolled it away.
func (w *terminal) await(wants ...string) {
	w.t.Helper()
	node, err := os.Hostname()
	if err != nil {
		w.t.Fatal(err)
	}
	until(w.t, fmt.Sprintf("the screen shows %q", wants), func() error {
		got := w.text()
		if !strings.HasPrefix(got, node) {
			return errors.New("the first line is not the node's:\n" + got)
		}
		for _, want := range wants {
			if !strings.Contains(got, want) {
				return fmt.Errorf("no %q in:\n%s", want, got)
			}
		}
		return nil
	})
}

// html is the screen as a page of its own.
func (w *terminal) html() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	colour := map[vt10x.Color]string{1: "#ff7b72", 2: "#56d364", 3: "#e3b341", 4: "#79b8ff", 9: "#ff7b72", 10: "#56d364", 11: "#e3b341", 12: "#79b8ff"}
	columns, rows := w.screen.Size()
	var b strings.Builder
	b.WriteString(`<!DOCTYPE html><meta charset="utf-8"><style>body { margin: 0; background: #0d1117 } pre { margin: 0; padding: 10px 14px; width: max-content; font: 14px/17px "DejaVu Sans Mono", monospace; color: #c9d1d9 }</style><pre>`)
	for y := range rows {
		last := ""
		for x := range columns {
			cell := w.screen.Cell(x, y)
			if c := colour[cell.FG]; c != last {
				if last != "" {
					b.WriteString("</span>")
				}
				if last = c; c != "" {
					fmt.Fprintf(&b, `<span style="color:%s">`, c)
				}
			}
			char := cell.Char
			if char == 0 {
				char = ' '
			}
			b.WriteString(html.EscapeString(string(char)))
		}
		if last != "" {
			b.WriteString("</span>")
		}
		b.WriteByte('\n')
	}
	return b.String() + "</pre>"
}

// history are the verdicts of several columns of five seconds.
var history = regexp.MustCompile(`Verdict +[sd.Ux]{3,}`)

// TestTerminal runs plegd status --watch in windows of several sizes.
func TestTerminal(t *testing.T) {
	n := bareNode(t)
	n.startRuntime("--pods", "40")
	n.startPlegd()
	n.awaitReason("healthy")
	shim := n.stopShim(n.sandbox())
	w := n.watch(t, 120, 50)
	w.await("containerd-shim in T")
	n.failpoints("ListContainers=hang;ContainerStatus=1*hang")
	culprit := fmt.Sprintf("(pid %d)", shim.Process.Pid)
	w.await(": ShimStuck (", "who waits for whom", "<== culprit", culprit, "kill -CONT", "Relists", "Verdict")

	for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 12}, {132, 43}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			// A window that is opened now has the history from before.
			w := n.watch(t, size[0], size[1])
			w.await(": ShimStuck (")
			w.press("G")
			w.await("container_status")
			w.press("g")
			if size[1] < 60 {
				w.await("lines 3 to ", "q quits")
			}
			if size[1] > 40 {
				w.await(culprit)
				until(t, "there is a history", func() error {
					if got := w.text(); !history.MatchString(got) {
						return errors.New(got)
					}
					return nil
				})
			}
			w.resize(100, 30)
			w.await("lines 3 to 28 of ", culprit)
			w.press("\x1b[6~")
			w.await("container_status")
			w.press("q")
			<-w.ended
			if err := w.cmd.Wait(); err != nil {
				t.Errorf("after q: %v", err)
			}
		})
	}

	t.Run("picture", func(t *testing.T) {
		if os.Getenv("SCREENSHOTS") == "" {
			t.Skip("SKIPPED: SCREENSHOTS names no directory")
		}
		page := filepath.Join(n.dir, "terminal.html")
		b := newBrowser(t, n, 1040, 870, "dark")
		if err := os.WriteFile(page, []byte(w.html()), 0o600); err != nil {
			t.Fatal(err)
		}
		b.run(chromedp.Navigate("file://" + page))
		b.shot("terminal")
	})
}
