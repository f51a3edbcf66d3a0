package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEnvironment(t *testing.T) {
	e := load(t, Sources{Environ: []string{
		"PATH=/bin",
		"MSCCLPP_TRANSPORTS=shm, tcp",
		"MSCCLPP_COMM__MAX_BLOCKS=7",
		"MSCCLPP_LAUNCH__TAG_OUTPUT=true",
		"MSCCLPP_LAUNCH__GRACE=",
		"MSCCLPP_TRANSPORT__IB_HOST__QUEUES=512",
		"MSCCLPP_TRANSPORT__IB_HOST__DEVICES=[mlx5_0, mlx5_1]",
		"MSCCLPP_TRANSPORT__SHM={slots: 4}",
		"MSCCLPP_PLUGINS__PATH__MY_LINK__FILE=/opt/x",
		"MSCCLPP_COLLECTIVES__TABLE=[{collective: allreduce, max_bytes: 64K, algorithm: ring, registered: true}]",
		"MSCCLPP_UNIQUE_ID=not-a-key",
	}})
	if len(e.Warnings) != 0 {
		t.Errorf("warnings %q", e.Warnings)
	}
	if strings.Join(e.Transports, "|") != "shm|tcp" || e.Comm.MaxBlocks != 7 || !e.Launch.TagOutput {
		t.Errorf("%v %d %v", e.Transports, e.Comm.MaxBlocks, e.Launch.TagOutput)
	}
	if e.Launch.Grace != Duration(5*time.Second) {
		t.Errorf("grace = %v: an empty variable must not count", e.Launch.Grace)
	}
	ib := e.Transport["ib-host"]
	if list, _ := ib["devices"].([]any); ib["queues"] != 512 || len(list) != 2 {
		t.Errorf("ib-host = %#v: options in text must get the type that YAML gives", ib)
	}
	if e.Transport["shm"]["slots"] != 4 || e.Plugins.Path["my-link"].File != "/opt/x" {
		t.Errorf("shm %v, pins %v", e.Transport["shm"], e.Plugins.Path)
	}
	row := e.Collectives.Table[0]
	if row.MaxBytes != 64<<10 || row.Registered == nil || !*row.Registered || row.Algorithm != "ring" {
		t.Errorf("row = %+v", row)
	}
	if o := e.Origin("transport.ib-host.queues"); o.Source != "MSCCLPP_TRANSPORT__IB_HOST__QUEUES" {
		t.Errorf("origin = %+v", o)
	}
}

// A variable that the launcher has set stands for the flag that the user gave.
func TestVariablesOfFlags(t *testing.T) {
	environ := []string{
		"MSCCLPP_COMM__MAX_BLOCKS=9999", "MSCCLPP_TRANSPORT__SHM__SLOTS=4", "MSCCLPP_LOG__LEVEL=info",
		EnvFlags + "=MSCCLPP_COMM__MAX_BLOCKS=--set,MSCCLPP_TRANSPORT__SHM__SLOTS=--set",
	}
	_, err := Load(Sources{Environ: environ})
	if want := "--set (MSCCLPP_COMM__MAX_BLOCKS): comm.max_blocks: 9999: expected"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v: expected it to begin with %q", err, want)
	}
	e := load(t, Sources{Environ: environ[1:]})
	for key, want := range map[string]string{"transport.shm.slots": "--set (MSCCLPP_TRANSPORT__SHM__SLOTS)", "log.level": "MSCCLPP_LOG__LEVEL"} {
		if got := e.Origin(key).String(); got != want {
			t.Errorf("%s comes from %q, expected %q", key, got, want)
		}
	}
	if len(e.Warnings) != 0 {
		t.Errorf("warnings %q", e.Warnings)
	}
}

// A launcher that another one has started hands on the names of that one's flags, but for
// the variables that it sets itself.
func TestVariablesOfFlagsOfTwoLaunchers(t *testing.T) {
	environ := append(Variables([]string{"HOME=/"}, []Setting{{"comm.max_blocks", "9999", "--set"}, {"log.level", "warn", "--set"}}), "HOME=/")
	environ = append(environ, Variables(environ, nil)...)
	environ = append(environ, Variables(environ, []Setting{{"launch.grace", "1s", "--grace"}, {"log.level", "info", "--log-level"}})...)
	last := map[string]string{} // as an environment has it
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		last[name] = value
	}
	environ = nil
	for name, value := range last {
		environ = append(environ, name+"="+value)
	}
	_, err := Load(Sources{Environ: environ})
	if want := "--set (MSCCLPP_COMM__MAX_BLOCKS): comm.max_blocks: 9999: expected"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v: expected it to begin with %q", err, want)
	}
	if got, want := last[EnvFlags], "MSCCLPP_COMM__MAX_BLOCKS=--set,MSCCLPP_LAUNCH__GRACE=--grace,MSCCLPP_LOG__LEVEL=--log-level"; got != want {
		t.Errorf("flags %q, expected %q", got, want)
	}
}

func TestUnknownVariablesOnlyWarn(t *testing.T) {
	e := load(t, Sources{Environ: []string{"MSCCLPP_COMM__SCRACH=1", "MSCCLPP_PORT_80_TCP=x", "MSCCLPP___=1", "MSCCLPP_=1"}})
	all := strings.Join(e.Warnings, "\n")
	for _, want := range []string{`MSCCLPP_COMM__SCRACH is not known (did you mean "MSCCLPP_COMM__SCRATCH"?)`, "MSCCLPP_PORT_80_TCP is not known"} {
		if !strings.Contains(all, want) {
			t.Errorf("warnings %q, expected %q", all, want)
		}
	}
}

// Ranks do not repeat what mscclpp-run has said, and say what they alone see.
func TestVariablesThatSomebodyWasWarnedOf(t *testing.T) {
	all := []string{"MSCCLPP_TYPO=1", "MSCCLPP_SLIP=1", "NCCL=1"}
	launcher := load(t, Sources{Environ: all})
	if len(launcher.Warnings) != 2 || !slices.Equal(launcher.Warned, []string{"MSCCLPP_SLIP", "MSCCLPP_TYPO"}) {
		t.Errorf("warnings %q of %q", launcher.Warnings, launcher.Warned)
	}
	all = append(all, EnvWarned+"="+strings.Join(launcher.Warned, ","))
	if e := load(t, Sources{Environ: all}); len(e.Warnings) != 0 || len(e.Warned) != 2 {
		t.Errorf("a rank repeats %q, and passes on %q", e.Warnings, e.Warned)
	}
	if e := load(t, Sources{Environ: append(all, "MSCCLPP_LAPSE=1")}); len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "MSCCLPP_LAPSE is not known") {
		t.Errorf("a rank says %q of a variable of its own", e.Warnings)
	}
}

// A variable that sets several keys is ignored for each that is set under its own name.
func TestEachKeyOfAnIgnoredVariableIsNamed(t *testing.T) {
	own := []string{"MSCCLPP_TRANSPORT__IB_HOST__GID_INDEX", "MSCCLPP_TRANSPORT__IB_NONATOMIC__GID_INDEX"}
	e := load(t, Sources{Environ: []string{"MSCCLPP_IB_GID_INDEX=1", own[0] + "=2", own[1] + "=3"}})
	if all := strings.Join(e.Warnings, "\n"); len(e.Warnings) != 2 || !strings.Contains(all, own[0]+" is set") || !strings.Contains(all, own[1]+" is set") {
		t.Errorf("warnings %q, expected one about each of %q", e.Warnings, own)
	}
	if len(e.Warned) != 1 {
		t.Errorf("%q are passed on, expected one name", e.Warned)
	}
}

func TestWrongValuesInVariablesAreErrors(t *testing.T) {
	for _, v := range []string{"MSCCLPP_COMM__SCRATCH=lots", "MSCCLPP_LAUNCH__TAG_OUTPUT=perhaps", "MSCCLPP_COMM__MAX_BLOCKS=-1", "MSCCLPP_LOG__LEVEL=loud", "MSCCLPP_COMM=1"} {
		_, err := Load(Sources{Environ: []string{v}})
		name, _, _ := strings.Cut(v, "=")
		if err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v, expected an error that names the variable", v, err)
		}
	}
}

func TestVariablesOfMSCCLPP(t *testing.T) {
	e := load(t, Sources{Environ: []string{
		"MSCCLPP_DEBUG=TRACE", "MSCCLPP_SOCKET_IFNAME=eth0", "MSCCLPP_SOCKET_FAMILY=AF_INET6",
		"MSCCLPP_HCA_DEVICES=mlx5_0,mlx5_3", "MSCCLPP_IB_GID_INDEX=3", "MSCCLPP_HOSTID=h", "MSCCLPP_FORCE_DISABLE_GDR=1",
		"MSCCLPP_IBV_SO=/opt/libibverbs.so.1", "MSCCLPP_FORCE_DISABLE_NVLS=1",
	}})
	if e.Log.Level != "debug" || e.Bootstrap.Interface != "eth0" || e.Bootstrap.Family != "inet6" || e.Bootstrap.HostID != "h" {
		t.Errorf("%+v %+v", e.Log, e.Bootstrap)
	}
	for _, name := range []string{"ib-host", "ib-nonatomic"} {
		ib := e.Transport[name]
		if list, _ := ib["devices"].([]any); len(list) != 2 || ib["gid_index"] != 3 || ib["gpu_direct"] != false || ib["library"] != "/opt/libibverbs.so.1" {
			t.Errorf("%s = %#v", name, ib)
		}
		if o := e.Origin("transport." + name + ".library"); o.Source != "MSCCLPP_IBV_SO" || !o.Flat() {
			t.Errorf("library of %s: origin %+v, flat %v", name, o, o.Flat())
		}
	}
	if len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "leave nvls out") {
		t.Errorf("warnings = %q", e.Warnings)
	}
}

func TestOwnVariableWinsOverOldName(t *testing.T) {
	for _, env := range [][]string{
		{"MSCCLPP_LOG_LEVEL=DEBUG", "MSCCLPP_LOG__LEVEL=error"},
		{"MSCCLPP_LOG__LEVEL=error", "MSCCLPP_LOG_LEVEL=DEBUG"},
	} {
		e := load(t, Sources{Environ: env})
		if e.Log.Level != "error" || len(e.Warnings) != 1 {
			t.Errorf("%v: level %s, warnings %q", env, e.Log.Level, e.Warnings)
		}
	}
}

func TestLevelsOfBothLoggers(t *testing.T) {
	for in, want := range map[string]string{"trace": "debug", "INFO": "info", "WARN": "warn", "ABORT": "error", "NONE": "none"} {
		if got := logLevel(in); got != want {
			t.Errorf("%s = %s, expected %s", in, got, want)
		}
	}
}

// Every key can be set by the variable that the reference names for it.
func TestEnvNameIsTheInverse(t *testing.T) {
	schema().leaves(func(n *node) {
		key := strings.ReplaceAll(n.key, "NAME", "ib-host")
		if n.kind == nodeOpaque {
			key += ".gid_index"
		}
		if strings.HasPrefix(key, "collectives.table.") {
			return // rows have no names
		}
		if got := dotted(envKey(EnvName(key))); got != key {
			t.Errorf("%s -> %s -> %q", key, EnvName(key), got)
		}
	})
}

func TestFlags(t *testing.T) {
	for _, s := range []Setting{{"comm.scrach", "1", "--set"}, {"", "1", "--set"}, {"comm..x", "1", "--set"}, {"comm.scratch", "x", "--set"}} {
		if _, err := Load(Sources{Flags: []Setting{s}}); err == nil || !strings.HasPrefix(err.Error(), "--set: ") {
			t.Errorf("%+v: %v, expected an error that names the flag", s, err)
		}
	}
	e := load(t, Sources{Flags: []Setting{{"transport.shm.slots", "16", "--set"}, {"transport.shm.slots", "32", "--set"}}})
	if e.Transport["shm"]["slots"] != 32 {
		t.Errorf("slots = %v, expected the last flag's 32", e.Transport["shm"]["slots"])
	}
}

func TestReserve(t *testing.T) {
	Reserve("MSCCLPP_TEST_RESERVED")
	e := load(t, Sources{Environ: []string{"MSCCLPP_TEST_RESERVED=1"}})
	if len(e.Warnings) != 0 {
		t.Errorf("warnings = %q", e.Warnings)
	}
}

func TestBytesAndDurations(t *testing.T) {
	for in, want := range map[string]Bytes{"0": 0, "1": 1, "1K": 1024, "3MiB": 3 << 20, "2 GiB": 2 << 30, "1T": 1 << 40, "7B": 7} {
		var b Bytes
		if err := b.UnmarshalText([]byte(in)); err != nil || b != want {
			t.Errorf("%s = %d, %v; expected %d", in, b, err, want)
		}
		var back Bytes
		if err := back.UnmarshalText([]byte(b.String())); err != nil || back != b {
			t.Errorf("%s prints as %s, which reads as %d", in, b, back)
		}
	}
	for _, in := range []string{"", "K", "-1", "1.5M", "1KB", "18446744073709551616", "16777216T"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q was read as %d", in, b)
		}
	}
	var d Duration
	if err := d.UnmarshalText([]byte("-1s")); err == nil {
		t.Error("a negative duration was accepted")
	}
}
