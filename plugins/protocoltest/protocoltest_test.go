package protocoltest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/plugins/protocoltest"
)

// flawKey makes this test program a plugin: "served" by package plugins, "" written from
// the page, or that with the flaw that the value names.
const flawKey = "PROTOCOLTEST_FLAW"

func TestMain(m *testing.M) {
	switch flaw, plugin := os.LookupEnv(flawKey); {
	case !plugin:
		os.Exit(m.Run())
	case flaw == "served":
		plugins.Serve(func(struct{ Lines int }) (framework.Transport, error) { return loopback.New(), nil })
	default:
		os.Exit(miniPlugin(flaw))
	}
}

// program is this test program as a plugin with a flaw.
func program(t *testing.T, flaw string) protocoltest.Program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A program with the race detector sleeps for a second before it ends.
	return protocoltest.Program{Path: self, Env: []string{flawKey + "=" + flaw, "GORACE=atexit_sleep_ms=0"}, CallLimit: 20 * time.Second}
}

// results runs the tests of the protocol that match.
func results(t *testing.T, p protocoltest.Program, match string) []transporttest.Result {
	t.Helper()
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open:  func(context.Context) (*transporttest.Side, error) { return transporttest.Embedded(loopback.New()), nil },
		Match: regexp.MustCompile(match), More: protocoltest.Tests(p), TestLimit: 2 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report.Results
}

const all = "^(start|life|calls|descriptors)/"

// Both plugins are right: the one that package plugins serves, and the one that was
// written from the page.
func TestGoodPlugins(t *testing.T) {
	for _, flaw := range []string{"served", ""} {
		t.Run("flaw="+flaw, func(t *testing.T) {
			t.Parallel()
			list := results(t, program(t, flaw), all)
			if want := len(protocoltest.Tests(protocoltest.Program{})); len(list) != want {
				t.Errorf("%d tests ran, expected %d", len(list), want)
			}
			for _, r := range list {
				if !r.Pass {
					t.Errorf("%s: %s", r.Name, r.Error)
				}
			}
		})
	}
}

// flaws are plugins that break one rule: the test that has to find it, and a part of
// what it has to say.
var flaws = []struct{ flaw, test, wanted string }{
	{"runs-for-anybody", "start/by-a-person", "want exit status 2"},
	{"chatty", "start/handshake", "want 1|1|unix|address|grpc"},
	{"socket-elsewhere", "start/handshake", "outside of PLUGIN_UNIX_SOCKET_DIR"},
	{"newest-version", "start/versions", `the plugin chose "2"`},
	{"keeps-stdout", "start/standard-output", "want the same pipe"},
	{"deaf", "start/inherited", "configure: "},
	{"looks-beside-itself", "start/pinned", "no handshake within"},
	{"inheritable", "start/close-on-exec", "want close-on-exec"},
	{"ends-by-sigterm", "life/signals", "terminated before Configure ended the plugin"},
	{"ends-by-sigint", "life/signals", "interrupt after Configure ended the plugin"},
	{"ends-by-sigpipe", "life/signals", "broken pipe before Configure ended the plugin"},
	{"outlives-parent", "life/orphan", "SIGTERM has not ended the plugin"},
	{"outlives-host", "life/end-of-host", "and the plugin has not soon enough"},
	{"outlives-host", "life/end-of-host-before-configure", "and the plugin has not after"},
	{"ends-badly", "life/end-of-host", "want exit status 0"},
	{"leaves-socket", "life/end-of-host-before-configure", "left its socket"},
	{"ends-after-calls", "life/end-of-host-in-a-call", "during a call, and the plugin has not"},
	{"schema-late", "calls/schema", "schema before configure"},
	{"early-calls", "calls/configure-first", "describe before configure: accepted"},
	{"configures-twice", "calls/configure-first", "a second configure: accepted"},
	{"any-option", "calls/unknown-options", `no_such_option_at_all":1}: accepted`},
	{"no-hint", "calls/unknown-options", `may mean "lines"`},
	{"typed-options", "calls/options-as-text", "configure with the defaults as strings"},
	{"any-value", "calls/option-values", `"certainly not"}: accepted`},
	{"any-object", "calls/options-object", "configure with []: accepted"},
	{"strict-fields", "calls/unknown-fields", "with a field of a later version"},
	{"any-kind", "calls/unknown-values", "of kind 77: accepted"},
	{"small-messages", "calls/large-messages", "ResourceExhausted"},
	{"plain-errors", "calls/errors", "stands for no class"},
	{"other-failure", "calls/errors", "with a failure of class"},
	{"one-piece", "calls/image-pieces", "want 1 MiB at most"},
	{"impatient", "descriptors/late", "answered before its descriptor arrived"},
	{"keeps-descriptors", "descriptors/closed", "more descriptors open"},
	{"no-ends", "descriptors/end-of-call", "more descriptors open"},
	{"one-packet", "descriptors/many", "a call with 70 descriptors: "},
	{"lossless", "descriptors/lost", "of whose two descriptors one arrived"},
	{"same-numbers", "descriptors/answers", "was used before"},
	{"other-call", "descriptors/answers", "the one of the request"},
	{"trusts-packets", "descriptors/malformed", "another magic"},
	{"trusts-numbers", "descriptors/malformed", "a packet with: a number twice"},
	{"trusts-strangers", "descriptors/stranger", "a packet of user 12345"},
}

// waited are the flaws that show as a wait for what never comes. The others get all the
// time that a busy machine may need.
var waited = map[string]bool{"keeps-descriptors": true, "one-packet": true, "no-ends": true, "ends-after-calls": true, "lossless": true, "trusts-packets": true, "trusts-numbers": true, "trusts-strangers": true, "deaf": true, "outlives-host": true, "outlives-parent": true}

func TestFlawsAreFound(t *testing.T) {
	for _, f := range flaws {
		t.Run(f.flaw+"/"+filepath.Base(f.test), func(t *testing.T) {
			t.Parallel()
			if f.flaw == "trusts-strangers" && os.Getuid() != 0 {
				t.Skip("needs root, to send in the name of another user")
			}
			p := program(t, f.flaw)
			if waited[f.flaw] {
				p.CallLimit = 2 * time.Second // in which a busy machine answers all other calls
			}
			for _, r := range results(t, p, "^"+f.test+"$") {
				if r.Pass || !strings.Contains(r.Error, f.wanted) {
					t.Errorf("pass %v, findings:\n%s\nexpected %q", r.Pass, r.Error, f.wanted)
				}
			}
		})
	}
}

// Every test finds a flaw: none passes whatever the plugin does.
func TestEveryTestFindsAFlaw(t *testing.T) {
	for _, x := range protocoltest.Tests(protocoltest.Program{}) {
		if !slices.ContainsFunc(flaws, func(f struct{ flaw, test, wanted string }) bool { return f.test == x.Name }) {
			t.Errorf("no plugin is broken so that %s finds it", x.Name)
		}
		if x.Rule == "" || !strings.HasSuffix(x.Rule, ".") {
			t.Errorf("%s: the rule %q is no sentence", x.Name, x.Rule)
		}
	}
}

func TestProgramThatIsNone(t *testing.T) {
	for path, wanted := range map[string]string{"/nonexistent/plugin": "start /nonexistent/plugin", "/bin/true": "no handshake"} {
		r := results(t, protocoltest.Program{Path: path}, "^start/handshake$")
		if len(r) != 1 || r[0].Pass || !strings.Contains(r[0].Error, wanted) {
			t.Errorf("%s: %v: expected %q", path, fmt.Sprint(r), wanted)
		}
	}
}
