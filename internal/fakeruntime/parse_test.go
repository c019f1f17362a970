package fakeruntime_test

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/fakeruntime"
)

func TestParseFailpoints(t *testing.T) {
	for spec, want := range map[string]string{
		"":                    "",
		" ; ":                 "",
		"ListContainers=hang": "ListContainers=hang",
		"Status = 2 * off -> error( unavailable )":          "Status=2*off->error(Unavailable)",
		"*=error(Unknown: a (b; c) -> d: e)":                "*=error(Unknown: a (b; c) -> d: e)",
		"Status=delay(250ms);Version=1*delay(3m)->panic":    "Status=delay(250ms);Version=1*delay(3m0s)->panic",
		"ListContainers=oversize(17MiB)":                    "ListContainers=oversize(17825792)",
		"socket=3*close->1*off->noaccept;Version=1*garbage": "Version=1*garbage;socket=3*close->1*off->noaccept",
	} {
		f, err := fakeruntime.ParseFailpoints(spec)
		if err != nil || f.String() != want {
			t.Errorf("%q: %q, %v; want %q", spec, f, err, want)
		}
	}
}

// TestParseFailpointsErrors requires one line that names the term, the value and the
// allowed values.
func TestParseFailpointsErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"hang":                           `failpoint "hang": want name=term, as in ListContainers=hang`,
		"ListContainer=hang":             `failpoint "ListContainer": no such call; want a call of runtime.v1 such as ListContainers, * for all, or socket`,
		"Status=hang;Status=off":         `failpoint "Status": given twice; put its terms into one, with -> between`,
		"Status=error(Unknown:\nx)":      `want one line of name=term`,
		"Status=hung":                    `failpoint Status: type "hung": want one of off, error, delay, hang, panic,`,
		"Status=0*hang":                  `term "0*hang": count: want a whole number, 1 or more`,
		"Status=hang->off":               `failpoint Status: "hang" has no count, so "off" would never come: write 1*hang`,
		"Status=error(Nope)":             `failpoint "Status": term "error(Nope)": code "Nope": want one of gRPC's, such as Unavailable`,
		"Status=delay(soon)":             `failpoint "Status": term "delay(soon)": duration "soon": want one such as 150ms, 2s or 3m, 0 or more`,
		"Status=hang(1s)":                `failpoint "Status": term "hang(1s)": argument "1s": hang takes none`,
		"Status=oversize(17MB)":          `size "17MB": want a number of bytes, or with MiB, 0 to 1024MiB`,
		"Status=error(Unknown: a":        `want parentheses in pairs`,
		"Status=noaccept":                `failpoint Status: type "noaccept": want one of off, error,`,
		"socket=1*freeze->off":           `failpoint socket: "1*freeze": freeze takes no count, since no connection passes it`,
		"Status=notready(Ready)":         `condition "Ready": want RuntimeReady or NetworkReady`,
		"Version=notready(NetworkReady)": `failpoint Version: notready is for Status`,
	} {
		f, err := fakeruntime.ParseFailpoints(spec)
		if err == nil {
			t.Errorf("%q: parsed as %q; want an error", spec, f)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %s\nwant %s", spec, err, want)
		}
	}
}
