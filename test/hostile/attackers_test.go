//go:build e2e

package hostile

import (
	"bufio"
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
	right := 0
	cases := []struct {
		name   string
		uid    int
		header string
		full   bool
	}{
		{"root", 0, "", true},
		{"nobody", 65534, "", false},
		{"a proxy of another user without a header", 33, "", false},
		{"a proxy of root with a header", 0, "X-Forwarded-For: 203.0.113.9\r\n", false},
	}
	for _, tt := range cases {
		if got := strings.Contains(askAs(t, tt.uid, p.Address, tt.header), `"facts"`); got == tt.full {
			right++
		} else {
			t.Errorf("%s sees everything: %v", tt.name, got)
		}
	}
	t.Logf("%d of %d clients see what they may", right, len(cases))
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
	_, err = io.WriteString(conn, "GET /api/v1/status HTTP/1.1\r\nHost: "+address+"\r\n"+header+"\r\n")
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
	cases := [][]string{
		{"--url=" + plain.URL, "--user=NAME:" + password},
		{"--url=" + secure.URL, "--insecure", "--user=NAME:" + password},
		{"--url=" + strings.Replace(plain.URL, "://", "://NAME:"+password+"@", 1)},
		{"--url=http://NAME:" + password + "@"},
		{"--url=" + plain.URL, "--user=" + password},
	}
	shown := 0
	for _, args := range cases {
		if out := run(t, append([]string{"status"}, args...)...); strings.Contains(out, password) {
			shown++
			t.Errorf("plegd status %q prints %s", args, out)
		}
	}
	if leaked.Load() > 0 {
		t.Errorf("%d requests went elsewhere", leaked.Load())
	}
	t.Logf("%d of %d passwords stayed", len(cases)-shown-int(leaked.Load()), len(cases))
}

// TestPlantedIncidents: links, FIFOs and garbage among the incidents are logged once and exported,
// and the next incident is stored.
func TestPlantedIncidents(t *testing.T) {
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
