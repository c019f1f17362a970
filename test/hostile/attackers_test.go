//go:build e2e

package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/lab"
)

// TestOtherUsers: over loopback, other users of the node and reverse proxies see the public summary.
func TestOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be several users")
	}
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 5)
	p := start(t, socket, lab.PlegdOptions{})
	p.awaitReason()
	for name, tt := range map[string]struct {
		uid    int
		header string
		full   bool
	}{
		"root":   {0, "", true},
		"nobody": {65534, "", false},
		"a proxy of another user without a header": {33, "", false},
		"a proxy of root with a header":            {0, "X-Forwarded-For: 203.0.113.9\r\n", false},
		"a proxy of root with another header":      {0, "Via: 1.1 gateway\r\n", false},
		"a page whose name resolves to loopback":   {0, "Host: evil.example\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			countAttack(t, clients)
			check.Equal(t, strings.Contains(askAs(t, tt.uid, p.Address, tt.header), `"facts"`), tt.full, "it sees everything")
		})
	}
	p.worksOn(rt)
}

// askAs asks for the status by a socket of a user.
func askAs(t *testing.T, uid int, address, header string) string {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := unix.SetfsuidRetUid(uid)
	lab.Must(t, err)
	conn, err := net.DialTimeout("tcp", address, patience)
	_, restored := unix.SetfsuidRetUid(self)
	lab.Must(t, err)
	lab.Must(t, restored)
	defer conn.Close()
	if !strings.HasPrefix(header, "Host: ") {
		header += "Host: " + address + "\r\n"
	}
	_, err = io.WriteString(conn, "GET /api/v1/status HTTP/1.1\r\n"+header+"\r\n")
	lab.Must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	lab.Must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	lab.Must(t, err)
	return string(body)
}

// TestPasswordStays: plegd status sends its password to no other origin and prints it nowhere.
func TestPasswordStays(t *testing.T) {
	t.Parallel()
	const password = "SECRETPW"
	var leaked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Add(1) }))
	defer elsewhere.Close()
	redirect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) })
	plain, secure := httptest.NewServer(redirect), httptest.NewTLSServer(redirect)
	defer plain.Close()
	defer secure.Close()
	for i, args := range [][]string{
		{"--url=" + plain.URL, "--user=NAME:" + password},
		{"--url=" + secure.URL, "--insecure", "--user=NAME:" + password},
		{"--url=" + strings.Replace(plain.URL, "://", "://NAME:"+password+"@", 1)},
		{"--url=http://NAME:" + password + "@"},
		{"--url=" + plain.URL, "--user=" + password},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			countAttack(t, secrets)
			out := run(t, append([]string{"status"}, args...)...)
			if strings.Contains(out, password) || leaked.Swap(0) > 0 {
				t.Errorf("plegd status %q sends its password elsewhere, or prints %s", args, out)
			}
		})
	}
}

// TestPlantedIncidents: links, FIFOs and garbage among the incidents are logged once and exported,
// and the next incident is stored.
func TestPlantedIncidents(t *testing.T) {
	countAttack(t, files)
	t.Parallel()
	rt, socket := serve(t, fakeruntime.Options{}, 5)
	dir := filepath.Join(lab.Dir(t), "state")
	incidents := filepath.Join(dir, "incidents")
	precious := filepath.Join(lab.Dir(t), "precious")
	write(t, precious, "precious")
	fifo(t, incidents+"/20261121T030405Z-000001.json")
	lab.Must(t, os.Symlink(precious, incidents+"/20261121T030405Z-000002.json"))
	lab.Must(t, os.Symlink(precious, incidents+"/draft.tmp"))
	write(t, incidents+"/20261121T030405Z-000003.json", "garbage")
	p := start(t, socket, lab.PlegdOptions{Flags: []string{"--state-dir=" + dir}})
	p.worksOn(rt)
	p.awaitMetric(`pleg_evidence_up{source="incidents"}`, "0")
	p.await("a stored incident", func(lab.Status) bool {
		files, _ := filepath.Glob(incidents + "/2*.json")
		return len(files) > 3
	})
	check.Equal(t, strings.Count(p.log(), "they are left alone"), 1, "lines of the log are about them")
	if b, err := os.ReadFile(precious); err != nil || string(b) != "precious" {
		t.Errorf("a link was followed: %q, %v", b, err)
	}
}

// TestBundleTargets: plegd bundle replaces nothing but a regular file.
func TestBundleTargets(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"a device":           func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
		"a link to a device": func(path string) error { return os.Symlink("/dev/null", path) },
		"a FIFO":             func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory":        func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			countAttack(t, files)
			target := filepath.Join(lab.Dir(t), "target")
			lab.Must(t, put(target))
			before, err := os.Lstat(target)
			lab.Must(t, err)
			out := run(t, "bundle", "-o", target, "--control-socket=", "--runtime-endpoint=/none", "--kubelet-healthz-url=")
			after, err := os.Lstat(target)
			lab.Must(t, err)
			check.Equal(t, after.Mode(), before.Mode(), "the mode of the target: %s", out)
		})
	}
}
