package lint

import (
	"fmt"
	"regexp"
	"strings"
)

// banned are things that do not belong into the tree. Paths of one machine are recognized
// by their form, so that this list names none.
var banned = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(^|[\s"'` + "`" + `(=:])/(home|Users|work|workspace|mnt|scratch)/[a-z][\w.-]*`), "a path of one machine"},
	{regexp.MustCompile(`(?i)[A-Z]:\\Users\\`), "a path of one machine"},
	{regexp.MustCompile(`\b` + `TO` + `DO\b|\b` + `FIX` + `ME\b|\b` + `XX` + `X\b|\b` + `HA` + `CK\b`), "a mark of unfinished work: finish it, or write down why it is right as it is"},
	{regexp.MustCompile(`(?i)\bas an ` + `ai\b|\blanguage ` + `model (assistant|here)|\bco-authored` + `-by:`), "not about the project"},
	{regexp.MustCompile(`(?m)^(<{7}|>{7}) `), "a merge conflict"},
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE ` + `KEY-----`), "a private key"},
}

// Words checks for what is banned.
func Words(files []*File) []Problem {
	var out []Problem
	for _, f := range files {
		if f.Generated() || strings.HasPrefix(f.Path, "internal/lint/") && f.Test() {
			continue // the tests of this package plant violations
		}
		for n, line := range strings.Split(f.Text, "\n") {
			for _, b := range banned {
				if found := b.pattern.FindString(line); found != "" {
					out = append(out, Problem{f.Path, n + 1, fmt.Sprintf("%q: %s", strings.TrimSpace(found), b.why)})
				}
			}
		}
	}
	return out
}
