package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// How much of the log of a failed stage is shown, when it has failed.
const (
	causeLines   = 20 // and behind each of them
	reasonLines  = 5  // since a test says why it has failed below its name
	troubleLines = 10
	tailLines    = 100
)

// Of lines that differ in numbers alone, these are shown.
const (
	firstAlike = 8
	lastAlike  = 2
)

var (
	// causes are lines that say what failed, wherever they stand in a log.
	causes = regexp.MustCompile(`^ *--- FAIL|^panic:|DATA RACE`)
	// troubles are lines that may say it. The first ones do: others follow from them.
	troubles = regexp.MustCompile(`(?i)\b(error|failed|fails|fatal|panic|BUG|Oops|refused|timed out|no such|not found|cannot|killed)\b`)
	counts   = regexp.MustCompile(`\b(0 failed|0 errors|no error|failed=0)\b`)
	numbers  = regexp.MustCompile(`\s*(0x[0-9a-fA-F]+|[0-9]+)`)
)

// squeeze leaves out lines that differ from many others in numbers alone, such as a warning that
// comes every second until the bound of a stage, and says how many it has left out.
func squeeze(lines []string) []string {
	shapes, total := make([]string, len(lines)), map[string]int{}
	for i, l := range lines {
		shapes[i] = numbers.ReplaceAllString(l, "#")
		total[shapes[i]]++
	}
	seen, left := map[string]int{}, 0
	var out []string
	flush := func() {
		if left > 0 {
			out = append(out, fmt.Sprintf("… %d lines like others", left))
		}
		left = 0
	}
	for i, l := range lines {
		s := shapes[i]
		seen[s]++
		if n := seen[s]; n > firstAlike && n <= total[s]-lastAlike && !causes.MatchString(l) {
			left++
			continue
		}
		flush()
		out = append(out, l)
	}
	flush()
	return out
}

// firstTroubles returns the numbers of the first lines that may say what failed.
func firstTroubles(lines []string, most int) (found []int) {
	for i, l := range lines {
		if troubles.MatchString(l) && !counts.MatchString(l) && len(found) < most {
			found = append(found, i)
		}
	}
	return found
}

// excerpt returns what is shown of the log of a stage that has failed: what names a cause, the
// first lines of trouble, and the end.
func excerpt(log []byte) []string {
	lines := squeeze(split(log))
	shown := firstTroubles(lines, troubleLines)
	n := 0
	for i, l := range lines {
		if causes.MatchString(l) && n < causeLines {
			for r := i; r <= i+reasonLines && r < len(lines); r++ {
				shown = append(shown, r)
			}
			n++
		}
	}
	for i := max(0, len(lines)-tailLines); i < len(lines); i++ {
		shown = append(shown, i)
	}
	slices.Sort(shown)
	var out []string
	next := 0
	for _, i := range slices.Compact(shown) {
		if i > next {
			out = append(out, fmt.Sprintf("… %d lines", i-next))
		}
		out = append(out, lines[i])
		next = i + 1
	}
	return out
}

func split(log []byte) []string {
	return strings.Split(strings.TrimRight(string(log), "\n"), "\n")
}
