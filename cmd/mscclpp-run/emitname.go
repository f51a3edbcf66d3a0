package main

import (
	"path/filepath"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// interpreters are programs that run another one, which their first argument names that is
// no option.
var interpreters = onfirstuse.Regexp(`^(python|pypy)[0-9.]*$|^(ba|da|k|z)?sh$|^(perl|ruby|julia|node|Rscript|php)$`)

// programOf is the program that a command line is about: of "python -u train.py" that is
// train.py.
func programOf(args []string) string {
	if interpreters().MatchString(filepath.Base(args[0])) {
		if script := scriptOf(args[1:]); script != "" {
			return script
		}
	}
	return args[0]
}

// scriptOf is the script among the arguments of an interpreter, or the module behind -m;
// "" where the program stands behind -c.
func scriptOf(args []string) string {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; arg {
		case "-c", "-e":
			return ""
		case "-m":
			if i+1 < len(args) {
				return strings.ReplaceAll(args[i+1], ".", "-")
			}
			return ""
		case "-X", "-W", "-o", "-O": // their values stand behind them
			i++
		default:
			if !strings.HasPrefix(arg, "-") {
				return arg
			}
		}
	}
	return ""
}

// jobNameOf makes a name that Kubernetes takes of that of a program.
func jobNameOf(program string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, filepath.Base(program))
	name = strings.Trim(name, "-")
	if name == "" || name[0] < 'a' {
		name = "job-" + name
	}
	return strings.TrimRight(name[:min(len(name), 33)], "-")
}
