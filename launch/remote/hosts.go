package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
	"github.com/mscclpp-go/mscclpp/launch"
)

// Host is one machine of a job.
type Host struct {
	Name  string // as ssh takes it: an alias, a name or an address, with user@ or without
	Slots int    // ranks that it takes; 0 = not said
}

// hostName is what ssh may be given: no option, no word of a shell. An address of IPv6 may
// have a zone, which says by which interface of this host ssh is to go.
var hostName = onfirstuse.Regexp(`^([A-Za-z0-9._][A-Za-z0-9._-]*@)?([A-Za-z0-9._:][A-Za-z0-9._:-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*%[A-Za-z0-9._-]+)$`)

// byteOrderMark begins files that some editors write.
const byteOrderMark = "\ufeff"

const maxHosts = 4096

// ParseHosts reads "a,b:4": names, each with a number of ranks or without. An address
// of IPv6 stands in brackets.
func ParseHosts(list string) ([]Host, error) {
	var all hosts
	for _, word := range strings.Split(list, ",") {
		if err := all.add(strings.TrimSpace(word), ""); err != nil {
			return nil, err
		}
	}
	return all.list, nil
}

// ReadHostfile reads one host a line, as mpirun's formats have it: "a", "a slots=4" or "a:4". Text
// behind a # is a comment. Name is that of the file, for messages.
func ReadHostfile(r io.Reader, name string) ([]Host, error) {
	var all hosts
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		text := lines.Text()
		if number == 1 {
			text = strings.TrimPrefix(text, byteOrderMark)
		}
		line, _, _ := strings.Cut(text, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		slots, counted, err := "", false, error(nil)
		for _, word := range words[1:] {
			key, value, ok := strings.Cut(word, "=")
			switch {
			case ok && key == "slots" && (value == "" || counted):
				err = invalid("%q: expected slots=N, once", word)
			case ok && key == "slots":
				slots, counted = value, true
			case ok && (key == "max_slots" || key == "max-slots"): // a limit for more than the slots, which nobody starts here
			default:
				err = invalid("%q: expected slots=N", word)
			}
		}
		if err == nil {
			err = all.add(words[0], slots)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, number, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s: %w", name, invalid("a line of more than %d bytes: expected one host a line", bufio.MaxScanTokenSize))
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(all.list) == 0 {
		return nil, fmt.Errorf("%s: %w", name, invalid("no host: expected one a line"))
	}
	return all.list, nil
}

// hosts are those read so far. One that comes again has more slots.
type hosts struct {
	list []Host
	at   map[string]int
}

func (h *hosts) add(word, slots string) error {
	user, name := "", word
	if before, after, ok := strings.Cut(word, "@"); ok && word[0] != '[' {
		user, name = before+"@", after
	}
	count, counted := slots, false
	if inside, after, ok := strings.Cut(strings.TrimPrefix(name, "["), "]"); ok && name[0] == '[' {
		name = inside
		if after != "" {
			if after[0] != ':' {
				return invalid("host %q: expected [ADDRESS]:N", word)
			}
			count, counted = after[1:], true
		}
	} else if before, after, ok := strings.Cut(name, ":"); ok && !strings.Contains(after, ":") {
		name, count, counted = before, after, true
	}
	if name = user + name; !hostName().MatchString(name) {
		return invalid("host %q: expected a name or an address, as in a,b:4 or [fd00::1]:4", word)
	}
	if counted && slots != "" {
		return invalid("host %s: %q ranks, and slots=%s: expected one of them", name, count, slots)
	}
	n := 0
	if count != "" || counted {
		var err error
		if n, err = strconv.Atoi(count); err != nil || n < 1 || n > launch.MaxRanks {
			return invalid("host %s: %q ranks: expected 1 to %d", name, count, launch.MaxRanks)
		}
	}
	if at, known := h.at[name]; known {
		h.list[at].Slots = max(1, h.list[at].Slots) + max(1, n)
		return nil
	}
	if len(h.list) == maxHosts {
		return invalid("more than %d hosts", maxHosts)
	}
	if h.at == nil {
		h.at = map[string]int{}
	}
	h.at[name] = len(h.list)
	h.list = append(h.list, Host{Name: name, Slots: n})
	return nil
}

// Spread returns the number of ranks of each host. Total is the number of all ranks, or
// 0; each is the number on every host, or 0. If both are 0, every host gets as many
// ranks as it has slots. Hosts without ranks are at the end of the list.
func Spread(list []Host, total, each int) ([]int, error) {
	out := make([]int, len(list))
	said, slots := 0, 0
	for i, h := range list {
		if h.Slots > 0 {
			said++
		}
		out[i] = max(1, h.Slots)
		slots += out[i]
	}
	switch {
	case each > 0:
		for i, h := range list {
			if out[i] = each; h.Slots > 0 && each > h.Slots {
				return nil, invalid("%d ranks on each host, and %s has %d slots: expected no more", each, h.Name, h.Slots)
			}
		}
		if sum := each * len(list); total > 0 && total != sum {
			return nil, invalid("-n %d, and %d ranks on each of %d hosts: with a list of hosts -n is the number of all ranks, expected %d", total, each, len(list), sum)
		}
	case total == 0:
	case said == 0: // evenly; the first hosts take what is left
		for i := range out {
			out[i] = total / len(out)
			if i < total%len(out) {
				out[i]++
			}
		}
	case total > slots:
		return nil, invalid("-n %d, and the %d hosts have %d slots: expected no more, or other numbers behind the hosts", total, len(list), slots)
	default: // host by host
		left := total
		for i := range out {
			out[i] = min(left, out[i])
			left -= out[i]
		}
	}
	sum := 0
	for i, n := range out {
		if sum += n; n > launch.MaxRanks {
			return nil, invalid("%d ranks on host %s: expected at most %d on a host", n, list[i].Name, launch.MaxRanks)
		}
	}
	if sum > bootstrap.MaxRanks {
		return nil, invalid("%d hosts with %d ranks: expected at most %d in a job", len(list), sum, bootstrap.MaxRanks)
	}
	return out, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", framework.ErrInvalid, fmt.Sprintf(format, args...))
}
