package config

import (
	"strconv"
	"strings"
)

// flatName says what becomes of a variable of MSCCL++.
type flatName struct {
	keys     []string            // of ours that take its value
	opposite bool                // it disables what the keys enable
	convert  func(string) string // nil: the value is taken as it is
	note     string              // without keys: what to do instead
}

// value returns what the keys are set to.
func (f flatName) value(v string) string {
	switch {
	case f.opposite:
		return not(v)
	case f.convert != nil:
		return f.convert(v)
	}
	return v
}

// effect says what the variable does, for the reference page.
func (f flatName) effect() string {
	if len(f.keys) == 0 {
		return "no effect: " + f.note
	}
	text := "sets `" + strings.Join(f.keys, "` and `") + "`"
	if f.opposite {
		text += " to the opposite"
	}
	return text
}

// flatNames are the variables that users of MSCCL++ know. Those that have a
// counterpart set it; the others answer with a warning that says what to do.
var flatNames = map[string]flatName{
	"MSCCLPP_LOG_LEVEL":     {keys: []string{"log.level"}, convert: logLevel},
	"MSCCLPP_LOG_FILE":      {keys: []string{"log.file"}},
	"MSCCLPP_DEBUG":         {keys: []string{"log.level"}, convert: logLevel},
	"MSCCLPP_DEBUG_FILE":    {keys: []string{"log.file"}},
	"MSCCLPP_HOSTID":        {keys: []string{"bootstrap.host_id"}},
	"MSCCLPP_SOCKET_IFNAME": {keys: []string{"bootstrap.interface"}},
	"MSCCLPP_SOCKET_FAMILY": {keys: []string{"bootstrap.family"}, convert: family},
	"MSCCLPP_SECRET_FILE":   {keys: []string{"bootstrap.secret_file"}},
	"MSCCLPP_HCA_DEVICES":   {keys: []string{"transport.ib-host.devices", "transport.ib-nonatomic.devices"}, convert: flowList},
	"MSCCLPP_IBV_SO":        {keys: []string{"transport.ib-host.library", "transport.ib-nonatomic.library"}},
	"MSCCLPP_IB_GID_INDEX":  {keys: []string{"transport.ib-host.gid_index", "transport.ib-nonatomic.gid_index"}},

	"MSCCLPP_FORCE_DISABLE_GDR": {keys: []string{"transport.ib-host.gpu_direct", "transport.ib-nonatomic.gpu_direct"}, opposite: true},

	"MSCCLPP_LOG_SUBSYS":         {note: "every message names its package; filter by that"},
	"MSCCLPP_DEBUG_SUBSYS":       {note: "every message names its package; filter by that"},
	"MSCCLPP_IBV_MODE":           {note: "list ib-host or ib-nonatomic in transports"},
	"MSCCLPP_COMM_ID":            {note: "mscclpp-run and MASTER_ADDR, MASTER_PORT tell ranks where to meet"},
	"MSCCLPP_CACHE_DIR":          {note: "nothing is cached on disk"},
	"MSCCLPP_NPKIT_DUMP_DIR":     {note: "log.dump_signal names a signal that prints the state of every channel"},
	"MSCCLPP_FORCE_DISABLE_NVLS": {note: "leave nvls out of transports"},

	"MSCCLPP_ENABLE_NCCL_FALLBACK":       {note: "libnccl.so.2 calls another NCCL where MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION names operations"},
	"MSCCLPP_NCCL_SYMMETRIC_MEMORY":      {note: "register buffers instead: registered buffers are used in place"},
	"MSCCLPP_CUDAIPC_USE_DEFAULT_STREAM": {note: "copies have a stream of their own"},
}

// logLevel maps the levels of both loggers of MSCCL++ to ours.
func logLevel(v string) string {
	switch strings.ToUpper(v) {
	case "TRACE", "DEBUG":
		return "debug"
	case "INFO":
		return "info"
	case "WARN", "WARNING":
		return "warn"
	case "ERROR", "ABORT", "VERSION":
		return "error"
	case "NONE":
		return "none"
	}
	return v
}

func family(v string) string {
	switch strings.ToUpper(v) {
	case "AF_INET", "INET":
		return "inet"
	case "AF_INET6", "INET6":
		return "inet6"
	}
	return v
}

// not turns a switch that disables into one that enables.
func not(v string) string {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return v // which is refused where it is used
	}
	return strconv.FormatBool(!b)
}

// flowList turns "a,b" into a list for an option whose schema is not known here.
func flowList(v string) string { return "[" + v + "]" }
