//go:build e2e

package faults

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/results"
)

// bookCase is a row of docs/results/casebook.md: a public incident, made again.
type bookCase struct {
	fault
	// row is its number, form tells apart the ways in which it is made.
	row  int
	form string
	// source is the public incident, made how it is made here.
	source, made string
	// symptom is what the kubelet suffers, "" where that is the reason itself or
	// nothing yet.
	symptom string
	// culprit is the one to be named; a zero field is not compared.
	culprit func(*bench) health.Link
	// first must stand in the first step.
	first func(*bench) string
	// within is how soon after the symptom the culprit must be named: the reason may
	// have a time of its own (goal), until which it is no symptom.
	within time.Duration
}

// explanation is what one run of a case showed.
type explanation struct {
	explained
	took time.Duration
}

// casesEnv is a regular expression for the cases to be made, by "1", "1b", and so on.
const casesEnv = "CASES"

// needCase skips a test that is a case of its own where another is asked for.
func needCase(t *testing.T, name string) {
	t.Helper()
	if asked := os.Getenv(casesEnv); asked != "" && asked != name {
		t.Skip("another case is asked for")
	}
}

// TestCaseBook makes the incidents of docs/results/casebook.md.
func TestCaseBook(t *testing.T) {
	runs := number(t, "RUNS")
	for i := range bookCases {
		c := &bookCases[i]
		if !caseWanted(t, c) {
			continue
		}
		c.complete()
		if why := c.leftOut(); why != "" || lab.StandInsOnly() != c.simulated() && lab.RuntimeGiven() {
			continue // that is of another column
		}
		t.Run(c.id(), func(t *testing.T) {
			kept := c.kept()
			defer func() { keepCase(t, kept) }()
			for range runs {
				b := newBench(t, &c.fault)
				r, e := b.runCase(c)
				one := results.Run{Wrong: r.wrong}
				if e.Culprit != nil {
					one.Seconds = secondsOrNil(e.took)
				}
				kept.Runs = append(kept.Runs, one)
				if b.plegd != nil {
					b.unwatch()
				}
			}
		})
	}
}

// id is the case's number, with the letter of its form.
func (c *bookCase) id() string { return fmt.Sprintf("%d%s", c.row, c.form) }

// caseWanted reports whether the environment asks for a case, or for none.
func caseWanted(t *testing.T, c *bookCase) bool {
	t.Helper()
	text := os.Getenv(casesEnv)
	wanted, err := regexp.Compile("^(" + text + ")$")
	if err != nil {
		t.Fatalf("%s: %v", casesEnv, err)
	}
	return text == "" || wanted.MatchString(c.id())
}

// kept is the case for the table of results.
func (c *bookCase) kept() *results.Case {
	kept := newCase(c.row, c.id()+": "+c.source+": "+c.made, c.simulated())
	kept.Want, kept.Goal = c.want, c.within.Seconds()
	if c.symptom != "" {
		kept.Want += ", behind " + c.symptom
	}
	return kept
}

// runCase makes the case once.
func (b *bench) runCase(c *bookCase) (result, explanation) {
	b.t.Helper()
	var e explanation
	f := c.fault
	f.explained = func(b *bench) (wrong string) {
		e, wrong = b.awaitCulprit(c)
		return wrong
	}
	r := b.run(&f)
	return r, e
}

// awaitCulprit waits until the culprit is named as the case wants it.
func (b *bench) awaitCulprit(c *bookCase) (e explanation, wrong string) {
	b.t.Helper()
	for {
		e.explained = explain(b.t, b.plegd)
		e.took = time.Since(b.injected)
		wrong = c.compare(b, &e.explained)
		if wrong == "" {
			b.t.Logf("culprit after %s: %s", seconds(e.took), e)
			if e.took > c.within {
				wrong = fmt.Sprintf("named after %s s, want %s", seconds(e.took), seconds(c.within))
			}
			return e, wrong
		}
		if e.took > c.within+10*time.Second {
			return e, fmt.Sprintf("%s: %s", wrong, e)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// compare says what is not as it must be, "" when all is.
func (c *bookCase) compare(b *bench, e *explained) string {
	if e.Reason != c.want {
		return "the reason is " + e.Reason
	}
	if c.symptom != "" && e.Symptom != c.symptom {
		return fmt.Sprintf("the symptom is %q", e.Symptom)
	}
	if want := c.culprit(b); e.Culprit == nil || !isLike(e.Culprit, &want) {
		return fmt.Sprintf("the culprit is %+v, not %+v", e.Culprit, want)
	}
	if want := c.first(b); !strings.Contains(e.Next, want) {
		return fmt.Sprintf("the first step is %q, without %q", e.Next, want)
	}
	return ""
}

func isLike(got, want *health.Link) bool {
	return got.Kind == want.Kind && (want.PID == 0 || got.PID == want.PID) && (want.State == "" || got.State == want.State) &&
		strings.Contains(got.Name, want.Name) && strings.Contains(got.Evidence, want.Evidence)
}

func (b *bench) socketDir() string { return b.socket[:strings.LastIndexByte(b.socket, '/')] }

// keepCase writes what a case showed where PLEGD_CASEBOOK_RESULTS says.
func keepCase(t *testing.T, c *results.Case) {
	dir := os.Getenv("PLEGD_CASEBOOK_RESULTS")
	if dir == "" || len(c.Runs) == 0 {
		return
	}
	if err := results.Write(dir, c); err != nil {
		t.Error(err)
	}
}
