package checks

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// How much the summary of failed stages shows. CI keeps only the end of what is printed, so
// this is short, and the names come last.
const (
	summaryLines = 60  // of all stages together
	blockLines   = 8   // of a failed test, with its first line
	endLines     = 10  // of a stage without a failed test, the last ones
	startLines   = 4   // and of these, the first that speak of trouble
	lineBytes    = 180 // of a line
)

var (
	failedTest = regexp.MustCompile(`^( *)--- FAIL: (\S+)`)
	anyOutcome = regexp.MustCompile(`^ *--- (FAIL|PASS|SKIP): `)
	runsTest   = regexp.MustCompile(`^=== (?:RUN|CONT|NAME|PAUSE) +(\S+)`)
	crash      = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|SIG[A-Z]+: )`)
	afterCrash = regexp.MustCompile(`^(FAIL|ok  |\?   |--- |={10})`)
	failedPkg  = regexp.MustCompile(`^FAIL\t(\S+)`)
	notes      = regexp.MustCompile(`^(# \S|\S+\.go:\d+:)`) // of a compiler, or of vet
)

// failure is a stage that has failed.
type failure struct {
	stage string
	err   error
	log   []byte
}

// digest returns the lines of a log that say what failed, and the names of it.
func digest(log []byte) (lines, names []string) {
	all := split(log)
	verbose := map[string][]string{} // of go test -v, by test: its messages come before its outcome
	running := ""
	for i := 0; i < len(all); i++ {
		l := all[i]
		test, pkg := failedTest.FindStringSubmatch(l), failedPkg.FindStringSubmatch(l)
		if now := runsTest.FindStringSubmatch(l); now != nil {
			running = now[1]
			continue
		}
		switch {
		case test != nil:
			names = append(names, test[2])
			end := i + 1
			for end < len(all) && strings.HasPrefix(all[end], test[1]+"    ") && !anyOutcome.MatchString(all[end]) {
				end++
			}
			block := append([]string{l}, verbose[test[2]]...)
			block = append(block, all[i+1:end]...)
			lines = append(lines, block[:min(len(block), blockLines)]...)
			i = end - 1
		case anyOutcome.MatchString(l):
			running = ""
		case running != "" && strings.HasPrefix(l, "    "):
			verbose[running] = append(verbose[running], l)
		case crash.MatchString(l):
			end := i + 1
			for end < len(all) && end < i+blockLines && !afterCrash.MatchString(all[end]) {
				end++
			}
			lines = append(lines, all[i:end]...)
			i = end - 1
		case pkg != nil:
			names = append(names, pkg[1])
			lines = append(lines, l)
		case notes.MatchString(l):
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		lines = ends(all)
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "" })
	return lines, names
}

// ends returns the first lines that speak of trouble, and the last lines.
func ends(all []string) (lines []string) {
	all = squeeze(all)
	end := max(0, len(all)-endLines)
	for _, i := range firstTroubles(all[:end], startLines) {
		lines = append(lines, all[i])
	}
	return append(lines, all[end:]...)
}

// summarize prints what has failed: for each stage the failed tests with their messages,
// then all names.
func summarize(w io.Writer, failed []failure) {
	if len(failed) == 0 {
		return
	}
	var last bytes.Buffer
	left := summaryLines - 2*len(failed) // a line for each stage, and one of names
	for i, f := range failed {
		lines, names := digest(f.log)
		fmt.Fprintf(w, "failed: %s: %v\n", f.stage, f.err)
		share := max(0, left/(len(failed)-i))
		shown := lines[:min(len(lines), share)]
		left -= len(shown)
		for _, l := range shown {
			fmt.Fprintf(w, "    %s\n", clip(l, lineBytes))
		}
		line := fmt.Sprintf("failed: %s: %s", f.stage, strings.Join(names, " "))
		fmt.Fprintln(&last, strings.TrimRight(clip(line, 4*lineBytes), ": "))
	}
	_, _ = w.Write(last.Bytes())
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
