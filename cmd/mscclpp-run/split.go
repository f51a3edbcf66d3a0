package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
)

// split separates the launcher's flags among the arguments of a verb from the verb's own. No letter
// and no name belongs to both (a test keeps it so), except help, which is the verb's. Flags that
// neither knows stay with the verb, which then says so. The result is in the spelling of pflag, for
// Parse alone.
func split(launcher, verb *pflag.FlagSet, args []string) (own, rest []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return own, append(rest, args[i:]...)
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		var open bool // the last flag still needs a value
		to := &rest
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch long := arg[1] == '-'; {
		case long && verb.Lookup(name) != nil:
			rest = append(rest, arg)
			open = takesValue(verb.Lookup(name)) && !hasValue
		case long && launcher.Lookup(name) == nil:
			rest = append(rest, arg)
		case long || len(name) > 1 && launcher.Lookup(name) != nil: // or -np, as mpirun has it
			own = append(own, "--"+strings.TrimLeft(arg, "-"))
			open, to = takesValue(launcher.Lookup(name)) && !hasValue, &own
		default:
			to, open = letters(launcher, verb, arg[1:], &own, &rest)
		}
		if open && i+1 < len(args) {
			i++
			*to = append(*to, args[i])
		}
	}
	return own, rest
}

// letters takes a word of short flags apart: -cn4 is the verb's -c and the
// launcher's -n4. It returns where the last flag went, and whether its value is
// still to come.
func letters(launcher, verb *pflag.FlagSet, word string, own, rest *[]string) (to *[]string, open bool) {
	for i := range len(word) {
		letter := word[i : i+1]
		flag := verb.ShorthandLookup(letter)
		if to = rest; flag == nil {
			if flag = launcher.ShorthandLookup(letter); flag != nil {
				to = own
			}
		}
		if flag == nil || takesValue(flag) {
			*to = append(*to, "-"+word[i:])
			return to, flag != nil && i == len(word)-1
		}
		*to = append(*to, "-"+letter)
	}
	return to, false
}

// takesValue says whether a flag is followed by a value: all but switches are.
func takesValue(f *pflag.Flag) bool { return f.NoOptDefVal == "" }

// again parses the launcher's flags from behind the verb. One that stood before the
// verb already, with another value, is a mistake and not a correction: -n is a
// number of iterations in nccl-tests, and of ranks here.
func again(f *pflag.FlagSet, name string, args []string) error {
	before := map[string]string{}
	f.Visit(func(flag *pflag.Flag) { before[flag.Name] = flag.Value.String() })
	if err := f.Parse(args); err != nil {
		return verb.Usage("%s: %v", name, verb.Mistaken(err))
	}
	err := meant(f)
	f.Visit(func(flag *pflag.Flag) {
		old, twice := before[flag.Name]
		if _, list := flag.Value.(pflag.SliceValue); !twice || list || old == flag.Value.String() {
			return
		}
		hint := ""
		if flag.Name == "np" {
			hint = "; it is the number of ranks, also as -n"
		}
		err = verb.Usage("--%s is %s before %s and %s after it: expected one of them%s", flag.Name, old, name, flag.Value, hint)
	})
	return err
}
