package ledger

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestDatagrams: a server that does not read the runtime's datagrams is named at once where it stands still, although the
// runtime makes a new socket for each attempt; not one that reads, or has other clients only.
func TestDatagrams(t *testing.T) {
	for name, tt := range map[string]struct {
		state  byte // of the server
		client uint32
		read   uint32 // bytes meanwhile
		after  time.Duration
		want   bool
	}{
		"it is stopped":                   {state: 'T', client: 778, after: limit, want: true},
		"it is stopped, for a moment":     {state: 'T', client: 778, after: limit - time.Second},
		"it is stopped, another's client": {state: 'T', client: 779, after: limit},
		"it reads":                        {state: 'T', client: 778, read: 100, after: limit},
		"it sleeps":                       {state: 'S', client: 778, after: limit},
		"it sleeps for long":              {state: 'S', client: 778, after: idleLimit, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := node(t, []process{{pid: 30, parent: 1, comm: "resolved", state: tt.state}})
			evidencetest.WriteTree(t, root, map[string]string{"30/task/30/wchan": "futex_wait_queue"})
			must.Do(t, os.Symlink("socket:[888]", filepath.Join(root, "30/fd/3")))
			now := time.Now()
			l := New(optionsOf(t, root, &now))
			server := proc.UDPServer{
				Socket:  proc.Socket{Inode: 888, Kind: unix.SOCK_DGRAM, Cookie: 5, Name: "127.0.0.53:53", RQueue: 768},
				Clients: []uint32{777},
			}
			l.readUDP = func(context.Context) ([]proc.UDPServer, error) { return []proc.UDPServer{server}, nil }
			l.passed = true
			must.Do(t, os.Symlink("socket:[777]", filepath.Join(root, "10/fd/3")))
			l.Pass(t.Context())
			must.Do(t, os.Remove(filepath.Join(root, "10/fd/3")))
			must.Do(t, os.Symlink("socket:[778]", filepath.Join(root, "10/fd/4"))) // the next attempt
			server.Clients = []uint32{tt.client}
			server.RQueue -= tt.read
			now = now.Add(tt.after)
			found := l.Pass(t.Context()).Findings
			want := facts.Link{Kind: facts.KindProcess, Name: "resolved", PID: 30}
			named := len(found) == 1 && found[0].Reason == peerStuck && found[0].Chain.Links[1].IsSame(&want)
			if named != tt.want || !tt.want && len(found) > 0 {
				t.Errorf("%+v, want %t", found, tt.want)
			}
		})
	}
}
