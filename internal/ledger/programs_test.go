package ledger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestPrograms: starts that fail end in the program that cannot be started, where that is known.
func TestPrograms(t *testing.T) {
	const shim, runc, script = "/usr/bin/containerd-shim-runc-v2", "/usr/sbin/runc", "#!sh\n"
	all := map[string]string{shim: script, runc: script}
	with := func(changes ...string) map[string]string {
		files := map[string]string{shim: script, runc: script}
		for i := 0; i < len(changes); i += 2 {
			files[changes[i]] = changes[i+1]
		}
		return files
	}
	const gone = "gone" // instead of a content
	for _, tt := range []struct {
		name    string
		files   map[string]string
		exe     string // "" for the shim's
		plugin  string // its content, "" for none
		oci     string // what the shim's working directory says, gone for no such file
		noPath  bool   // the runtime's environment cannot be read
		before  bool   // the runtime was started after the shim
		changed bool   // after the newest container
		want    string // the file, "" for none
		defect  string
		text    string // in the evidence of the runtime
	}{
		{name: "all is there", files: all},
		{name: "the shim's program is gone", files: with(shim, gone), exe: shim + " (deleted)", want: shim, defect: "is not there"},
		{name: "it was replaced", files: all, exe: shim + " (deleted)"},
		{name: "it is empty", files: with(shim, ""), want: shim, defect: "is empty"},
		{name: "a runtime that was started since finds another one", files: with(shim, gone, "/usr/sbin/containerd-shim-runc-v2", script), before: true},
		{name: "a runtime that was started since finds none", files: with(shim, gone), before: true, want: shim, defect: "is not there"},
		{name: "where such a runtime looks is not known", files: with(shim, gone), before: true, noPath: true},
		{name: "runc is gone", files: with(runc, gone), want: "runc", defect: "is in no directory of the runtime's PATH"},
		{name: "runc is gone, PATH is not known", files: with(runc, gone), noPath: true},
		{name: "runc is no program", files: with(runc, "x"), want: runc, defect: "begins with neither an ELF header nor #!"},
		{name: "another OCI runtime is gone", files: all, oci: "/opt/crun", want: "/opt/crun", defect: "is not there"},
		{name: "the OCI runtime is not known", files: with(runc, gone), oci: gone},
		{name: "the OCI runtime of another shim is not known", files: with("/usr/bin/containerd-shim-runsc-v1", script, runc, gone), exe: "/usr/bin/containerd-shim-runsc-v1"},
		{name: "a shim without a file", files: all, exe: "/memfd:shim (deleted)"},
		{name: "the interpreter of a network plugin is gone", files: all, plugin: "#!/usr/bin/python3\n", want: "/opt/cni/bin/vendor", defect: "cannot be started, for its interpreter /usr/bin/python3 is not there"},
		{name: "a network plugin is gone", files: all, plugin: gone, want: "/opt/cni/bin/vendor", defect: "is not there"},
		{name: "it was changed", files: all, changed: true, text: runc + " was changed at"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, nil)
			for file, text := range tt.files {
				place := filepath.Join(root, "10/root", file)
				must.Do(t, os.MkdirAll(filepath.Dir(place), 0o755))
				if text != gone {
					must.Do(t, os.WriteFile(place, []byte(text), 0o755))
				}
			}
			if tt.plugin != "" && tt.plugin != gone {
				place := filepath.Join(root, "10/root/opt/cni/bin/vendor")
				must.Do(t, os.MkdirAll(filepath.Dir(place), 0o755))
				must.Do(t, os.WriteFile(place, []byte(tt.plugin), 0o755))
			}
			tree := map[string]string{}
			if !tt.noPath {
				tree["10/environ"] = "A=b\x00PATH=/usr/bin:/usr/sbin\x00"
			}
			if tt.oci != gone {
				tree["20/cwd/runtime"] = tt.oci
			}
			evidencetest.WriteTree(t, root, tree)
			exe := tt.exe
			if exe == "" {
				exe = shim
			}
			must.Do(t, os.Symlink(exe, filepath.Join(root, "20/exe")))
			must.Do(t, os.Symlink("/usr/bin/containerd", filepath.Join(root, "10/exe")))
			now := time.Now()
			options := optionsOf(t, root, &now)
			if tt.plugin != "" {
				options.NetworkPlugins = func(context.Context) ([][]string, error) { return [][]string{{"/opt/cni/bin/vendor"}}, nil }
			}
			l := New(options)
			newest := now.Add(time.Hour)
			if tt.changed {
				newest = now.Add(-time.Hour)
			}
			l.lastListed = map[string]*cri.Entry{"a": {CreatedAt: newest.UnixNano()}}
			process, err := l.Table.Alive(20)
			check.Equal(t, err, nil, "the shim")
			runtime, _ := l.Table.Alive(10)
			id := runtime.ID()
			if tt.before {
				id.Start++
			}
			l.started = starts{runtime: id, proven: true, since: now.Add(time.Minute), dir: namespaces, dirs: []*startDir{{path: "/run/bundles"}}}
			p := &pass{Ledger: l, moment: now, pids: []int{10}, shims: map[int]proc.Process{20: process}}
			found := p.startsFinding(t.Context())
			links := found[0].Chain.Links
			if !strings.Contains(links[0].Evidence, tt.text) || tt.text == "" && strings.Contains(links[0].Evidence, "was changed") {
				t.Errorf("the evidence is %q", links[0].Evidence)
			}
			if tt.want == "" {
				check.Equal(t, len(links), 1, "the links")
				return
			}
			check.Equal(t, *found[0].Chain.Culprit(), facts.Link{Kind: facts.KindFile, Name: tt.want, State: facts.LinkFailing, Fingerprint: filepath.Base(tt.want), Evidence: tt.want + " " + tt.defect + ", and starts of pods need it"}, "the culprit")
		})
	}
}

// TestWriter: starts that fail end in the process that has one of their programs open for writing, under any path of its own.
func TestWriter(t *testing.T) {
	const runc, plugin, other = "usr/sbin/runc", "opt/cni/bin/vendor", "opt/cni/bin/other"
	for _, tt := range []struct {
		name, file, flags string
		state             byte
		hasNoInode        bool // before Linux 5.14
		isBundled         bool // the networks of pods are made
		link              string
		want              facts.LinkState // "" for none
	}{
		{name: "a plugin, by an installer that is stopped", file: plugin, flags: "0100001", state: 'T', want: facts.LinkStopped},
		{name: "runc, by one that runs", file: runc, flags: "0100002", state: 'R', want: facts.LinkBusy},
		{name: "on an old kernel", file: plugin, flags: "0100001", state: 'S', hasNoInode: true, want: facts.LinkBusy},
		{name: "on an old kernel, by another name", file: plugin, flags: "0100001", state: 'S', hasNoInode: true, link: "draft"},
		{name: "by another name", file: plugin, flags: "0100001", state: 'S', link: "draft", want: facts.LinkBusy},
		{name: "a plugin that has done its part", file: plugin, flags: "0100001", state: 'S', isBundled: true},
		{name: "runc, behind the plugins", file: runc, flags: "0100001", state: 'S', isBundled: true, want: facts.LinkBusy},
		{name: "to read", file: plugin, flags: "0100000", state: 'S'},
		{name: "another file", file: other, flags: "0100001", state: 'S'},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := node(t, []process{{pid: 30, parent: 1, comm: "install-cni", state: tt.state}})
			for _, file := range []string{"usr/bin/containerd-shim-runc-v2", runc, plugin, other} {
				place := filepath.Join(root, "10/root", file)
				must.Do(t, os.MkdirAll(filepath.Dir(place), 0o755))
				must.Do(t, os.WriteFile(place, []byte("#!sh\n"), 0o755))
			}
			place := filepath.Join(root, "10/root", tt.file)
			var st unix.Stat_t
			must.Do(t, unix.Stat(place, &st))
			info := "flags:\t" + tt.flags + "\n"
			if !tt.hasNoInode {
				info += fmt.Sprintf("ino:\t%d\n", st.Ino)
			}
			evidencetest.WriteTree(t, root, map[string]string{"10/environ": "PATH=/usr/sbin\x00", "20/cwd/runtime": "runc", "30/fdinfo/5": info})
			must.Do(t, os.MkdirAll(filepath.Join(root, "30/fd"), 0o755))
			if tt.link != "" {
				must.Do(t, os.Link(place, filepath.Join(root, tt.link)))
				place = filepath.Join(root, tt.link)
			}
			must.Do(t, os.Symlink(place, filepath.Join(root, "30/fd/5")))
			must.Do(t, os.Symlink("/usr/sbin/runc", filepath.Join(root, "20/exe")))
			must.Do(t, os.Symlink("/usr/bin/containerd", filepath.Join(root, "10/exe")))
			now := time.Now()
			options := optionsOf(t, root, &now)
			options.NetworkPlugins = func(context.Context) ([][]string, error) {
				return [][]string{{"/usr/lib/cni/vendor", "/opt/cni/bin/vendor"}}, nil
			}
			l := New(options)
			shim, err := l.Table.Alive(20)
			check.Equal(t, err, nil, "the shim")
			runtime, _ := l.Table.Alive(10)
			l.started = starts{runtime: runtime.ID(), proven: true, since: now, dir: namespaces, dirs: []*startDir{{path: "/run/bundles"}}}
			if tt.isBundled {
				l.started.bundled = now
			}
			p := &pass{Ledger: l, moment: now, pids: []int{10}, shims: map[int]proc.Process{20: shim}}
			culprit := p.startsFinding(t.Context())[0].Chain.Culprit()
			if tt.want == "" {
				check.Equal(t, culprit.Kind, facts.KindRuntime, "the culprit")
				return
			}
			check.Equal(t, *culprit, facts.Link{Kind: facts.KindProcess, Name: "install-cni", PID: 30, State: tt.want, Evidence: "has /" + tt.file + " open for writing, so that nobody can start it (text file busy)"}, "the culprit")
			must.Do(t, os.Remove(filepath.Join(root, "30/stat")))
			check.Equal(t, p.startsFinding(t.Context())[0].Chain.Culprit().Kind, facts.KindRuntime, "the culprit once it has ended")
		})
	}
}
