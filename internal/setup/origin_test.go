package setup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
)

// A program's defaults for a transport are for jobs that use it; an option of a user that no transport reads is a mistake.
func TestDefaultsOfATransportThatIsNotListed(t *testing.T) {
	s := config.Sources{Environ: []string{"MSCCLPP_TRANSPORTS=shm"}, Defaults: []config.Setting{{Key: "transport.tcp.max_rate", Value: "1G", Flag: "defaults[0]"}}}
	for _, c := range []struct {
		flags []config.Setting
		want  string
	}{
		{nil, ""},
		{[]config.Setting{{Key: "transport.tcp.max_rate", Value: "2G", Flag: "--set"}}, `--set: transport.tcp.max_rate: `},
	} {
		s.Flags = c.flags
		cfg, err := config.Load(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := optionsWithoutTransport(cfg); (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("flags %v: %v, expected %q", c.flags, err, c.want)
		}
	}
}

// The origin of a refused option is that of the key that the error carries, whatever its
// text quotes. An error about no key in particular has the origins of all.
func TestOriginOfARefusedOption(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.yaml")
	text := "transport:\n  acme:\n    port: 1\n    portal: 2\n    deep:\n      b: 3\n    list: [a]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Sources{Job: file})
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%[1]s:6: transport.acme.deep.b, %[1]s:7: transport.acme.list, %[1]s:3: transport.acme.port, %[1]s:4: transport.acme.portal: ", file)
	for _, c := range []struct {
		err  error
		want string // in front of the error; lines of the file
	}{
		{framework.BadOption("portal", "portal 2: not with \"port\" and list "), file + ":4: transport.acme.portal: "},
		{framework.BadOption("deep.b", "deep.b 3: too much"), file + ":6: transport.acme.deep.b: "},
		{framework.BadOption("list[0]", "no such thing"), file + ":7: transport.acme.list: "},
		{framework.BadOption("deep", "deep: expected less in it"), file + ":6: transport.acme.deep.b: "},
		{framework.BadOption("absent", "absent: expected a value"), all},
		{fmt.Errorf("%w: port and portal", framework.ErrInvalid), all},
		{framework.ErrUnavailable, ""},
	} {
		if got := withOrigin(cfg, "acme", c.err); !errors.Is(got, c.err) || !strings.HasPrefix(got.Error(), c.want+c.err.Error()) {
			t.Errorf("%v\ngot      %v\nexpected %s first", c.err, got, c.want)
		}
	}
}
