package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestDelays: what helpers wait for one after the other is named, while calls for pods are slow; not what few of them wait
// for, nor where these have just begun, have not ended, or wait for a disk.
func TestDelays(t *testing.T) {
	for name, tt := range map[string]struct {
		channel string // "" for that of a seccomp supervisor
		starved bool
		busy    bool // all of its life
		count   int  // 0 for slowWaits
		age     time.Duration
		calm    bool
		stay    bool
		// together is set where all wait at once.
		together bool
		want     bool
	}{
		"each waits for the supervisor": {want: true},
		"few":                           {count: slowWaits - 1},
		"they have just begun":          {age: slowHelper / 2},
		"they have hung for long":       {age: time.Minute},
		"calls are not slow":            {calm: true},
		"none has ended":                {stay: true},
		"all wait at once":              {together: true},
		"each waits for a disk":         {channel: "io_schedule"},
		"in another kernel function":    {channel: "audit_log_start", want: true},
		"each gets no CPU":              {starved: true, want: true},
		"each runs":                     {busy: true, want: true},
		"below a frozen file system":    {channel: "__sb_start_write", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := node(t, []process{{pid: 50, parent: 1, comm: "supervisor", state: 'S'}})
			evidencetest.WriteTree(t, root, map[string]string{"50/task/50/wchan": "futex_wait_queue"})
			must.Do(t, os.Symlink("anon_inode:seccomp notify", filepath.Join(root, "50/fd/7")))
			now := time.Now()
			options := optionsOf(t, root, &now)
			options.Suspects = func() bool { return !tt.calm }
			l := New(options)
			channel := "seccomp_do_user_notification"
			want := facts.Link{Kind: facts.KindProcess, Name: "supervisor", PID: 50}
			if tt.channel != "" {
				channel = tt.channel
				want = facts.Link{Kind: facts.KindKernel, Name: channel}
			}
			state := byte('D')
			reason := helperStuck
			if tt.starved {
				state = 'R'
				reason = runtimeStarved
				want = facts.Link{Kind: facts.KindHelper, Name: "runc", PID: 30 + slowWaits - 1}
			}
			if tt.busy {
				state = 'S'
				channel = "do_wait"
				want = facts.Link{Kind: facts.KindHelper, Name: "runc", PID: 30 + slowWaits - 1}
			}
			count := slowWaits
			if tt.count != 0 {
				count = tt.count
			}
			age := 3 * time.Second
			if tt.age != 0 {
				age = tt.age
			}
			for i := range count {
				pid := 30 + i
				write(t, root, process{
					pid: pid, parent: 20, comm: "runc", state: state, arguments: []string{"runc", "create", "abc"}, age: age,
				})
				evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%[1]d/task/%[1]d/wchan", pid): channel})
				if tt.busy {
					stat := filepath.Join(root, fmt.Sprint(pid), "stat")
					text, err := os.ReadFile(stat)
					must.Do(t, err)
					busy := strings.Replace(string(text), " 104 0 0 0 0 0 0 0 ", " 104 0 0 0 10 10 200 100 ", 1)
					must.Do(t, os.WriteFile(stat, []byte(strings.TrimSpace(busy)+strings.Repeat(" 0", 30)), 0o600))
				}
				isLast := i == count-1
				if !tt.together || isLast {
					l.Table = proc.NewTable(root) // which has read no processes yet
					l.Pass(t.Context())
				}
				if !tt.together && !tt.stay {
					must.Do(t, os.RemoveAll(filepath.Join(root, fmt.Sprint(pid))))
				}
				now = now.Add(SuspectInterval)
			}
			found := l.Pass(t.Context()).Findings
			named := len(found) == 1 && found[0].Reason == reason && found[0].Chain.Culprit().IsSame(&want)
			if named != tt.want || !tt.want && len(found) > 0 {
				t.Errorf("%+v, want %t", found, tt.want)
			}
		})
	}
}
