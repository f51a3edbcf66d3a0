package transporttest

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Result is the outcome of one test.
type Result struct {
	Name     string        `json:"name"`
	Pass     bool          `json:"pass"`
	Error    string        `json:"error,omitempty"` // the findings, one a line
	Known    string        `json:"known,omitempty"` // reason, if the failure was expected
	Duration time.Duration `json:"duration_ns"`
}

// Report is the outcome of the suite.
type Report struct {
	Transport string   `json:"transport"` // name and version, as described
	Results   []Result `json:"results"`
	Left      int      `json:"left,omitempty"`   // tests that could not be run
	Reason    string   `json:"reason,omitempty"` // the reason that they do not run
}

// Failed counts the tests that failed.
func (r Report) Failed() int {
	n := 0
	for _, t := range r.Results {
		if !t.Pass {
			n++
		}
	}
	return n
}

// Passed counts the tests that passed, expected failures included.
func (r Report) Passed() int { return len(r.Results) - r.Failed() }

// Summary is the last line of a report.
func (r Report) Summary() string {
	text := fmt.Sprintf("%d passed, %d failed", r.Passed(), r.Failed())
	if r.Left > 0 {
		text += fmt.Sprintf("; %d not run: they need %s", r.Left, r.Reason)
	}
	return text
}

// String is one line for people, followed by the findings.
func (r Result) String() string {
	var b strings.Builder
	word := "ok  "
	switch {
	case !r.Pass:
		word = "FAIL"
	case r.Known != "":
		word = "xfail"
	}
	fmt.Fprintf(&b, "%-5s %-38s %8.3f s", word, r.Name, r.Duration.Seconds())
	if r.Known != "" {
		fmt.Fprintf(&b, "  known: %s", r.Known)
	}
	if r.Error != "" && !r.Pass {
		for line := range strings.SplitSeq(r.Error, "\n") {
			fmt.Fprintf(&b, "\n      %s", line)
		}
	}
	return b.String()
}

// Print writes the report for people. The last line is Summary.
func (r Report) Print(w io.Writer) error {
	for _, t := range r.Results {
		if _, err := fmt.Fprintln(w, t); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, r.Summary())
	return err
}

// PrintJSON writes one object a test, and one with the totals.
func (r Report) PrintJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	for _, t := range r.Results {
		if err := e.Encode(t); err != nil {
			return err
		}
	}
	return e.Encode(struct {
		Transport string `json:"transport"`
		Passed    int    `json:"passed"`
		Failed    int    `json:"failed"`
		Left      int    `json:"left,omitempty"`
		Reason    string `json:"reason,omitempty"`
	}{r.Transport, r.Passed(), r.Failed(), r.Left, r.Reason})
}
