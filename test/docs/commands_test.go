package docs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/must"
)

// command is a line of a code block that calls plegd, without what needs no plegd.
var command = regexp.MustCompile(`^    (?:\$ )?(?:sudo )?(?:build/)?(plegd|curl) .*`)

// TestCommands runs every plegd and curl command of the pages' code blocks on a node
// whose list of containers hangs. They must print something and exit with a status of
// theirs, 0 to 2.
func TestCommands(t *testing.T) {
	n, ran := startNode(t), 0
	for page, text := range pages(t) {
		for _, line := range strings.Split(text, "\n") {
			if !command.MatchString(line) {
				continue
			}
			if line = n.adapt(line); line == "" {
				continue
			}
			ran++
			out, err := n.shell(line)
			exit := (*exec.ExitError)(nil)
			if errors.As(err, &exit) && exit.ExitCode() <= 2 && !strings.HasPrefix(line, "curl") {
				err = nil
			}
			if err != nil || len(out) == 0 {
				t.Errorf("%s: %s: %v\n%s", page, line, err, out)
			}
		}
	}
	if ran < 8 {
		t.Errorf("the pages have %d commands, want at least 8", ran)
	}
}

// node is a simulated runtime with a plegd beside it.
type node struct {
	dir, incident, web string
	env                []string
}

// adapt makes a page's line one that can run here; empty for the daemon itself.
func (n *node) adapt(line string) string {
	line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
	line = strings.TrimPrefix(strings.TrimPrefix(line, "sudo "), "build/")
	line, _, _ = strings.Cut(line, "  ") // without the explanation
	line = strings.TrimSuffix(line, " &")
	if strings.HasPrefix(line, "plegd run") || strings.HasPrefix(line, "plegd simulate --socket") {
		return ""
	}
	// TLS and passwords are tested in cmd/plegd.
	return strings.NewReplacer("https://NODE:20290 --cacert ca.pem --user NAME:PASSWORD", n.web, "http://NODE:20290", n.web,
		"/var/tmp/", n.dir+"/", "/run/plegd/plegd.sock", n.dir+"/p.sock", "/tmp/", n.dir+"/",
		" ID", " "+n.incident, " FILE", " "+n.dir+"/state/incidents/"+n.incident+".json").Replace(line)
}

func (n *node) shell(line string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "exec "+line)
	cmd.Env = n.env
	cmd.Dir = n.dir
	cmd.WaitDelay = time.Second
	if strings.Contains(line, "--watch") {
		return firstOutput(cmd)
	}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out, err
}

// firstOutput runs a command that does not end until it has printed something.
func firstOutput(cmd *exec.Cmd) ([]byte, error) {
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	out := make([]byte, 4096)
	n, err := pipe.Read(out)
	return out[:n], err
}

func startNode(t *testing.T) *node {
	t.Helper()
	binary := build(t)
	n := &node{dir: t.TempDir(), web: "http://" + must.FreeAddress(t)}
	n.env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "PLEGD_RUNTIME_ENDPOINT="+n.dir+"/s.sock",
		"PLEGD_CONTROL_SOCKET="+n.dir+"/p.sock", "PLEGD_STATE_DIR="+n.dir+"/state",
		"PLEGD_WEB_LISTEN_ADDRESS="+strings.TrimPrefix(n.web, "http://"),
		"PLEGD_KUBELET_HEALTHZ_URL=")
	n.start(t, "plegd", "simulate", "--socket", n.dir+"/s.sock", "--pods", "3")
	// Without the machine's /proc: it may itself be short of something.
	n.start(t, "plegd", "run", "--path.procfs="+t.TempDir(), "--path.sysfs="+t.TempDir())
	n.until(t, "plegd status", "HEALTHY")
	n.until(t, "plegd simulate failpoints --socket "+n.dir+"/s.sock ListContainers=hang", "")
	n.until(t, "plegd status", "RuntimeListStall")
	n.until(t, "ls "+n.dir+"/state/incidents", ".json")
	files, err := filepath.Glob(n.dir + "/state/incidents/*.json")
	if err != nil || len(files) == 0 { // a loaded machine may add one of its own
		t.Fatalf("incident files: %v, %v", files, err)
	}
	n.incident = strings.TrimSuffix(filepath.Base(files[len(files)-1]), ".json")
	return n
}

func (n *node) start(t *testing.T, args ...string) {
	t.Helper()
	log := &bytes.Buffer{}
	cmd := exec.Command("env", args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = n.env, log, log
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), log)
		}
	})
}

// until runs a command until its output holds want.
func (n *node) until(t *testing.T, line, want string) {
	t.Helper()
	var out []byte
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		out, err = n.shell(line)
		if exit := (*exec.ExitError)(nil); (err == nil || errors.As(err, &exit)) && strings.Contains(string(out), want) {
			return
		}
	}
	t.Fatalf("%s has no %q: %v\n%s", line, want, err, out)
}
