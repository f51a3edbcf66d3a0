package config

import "reflect"

// chosen returns what a value will be that leaves the choice to the program, the device or the
// ranks; "" for one that makes the choice itself. A choice that ranks make together is described.
func (e *Effective) chosen(key, value string) string {
	if value != left[key] {
		return ""
	}
	switch key {
	case "device":
		return "what the program asks for, else host"
	case "gpu_code":
		return "machine code where there is some for the GPU, else ptx"
	case "transports":
		return e.by(format(reflect.ValueOf(e.TransportsOn("host"))), format(reflect.ValueOf(e.TransportsOn("cuda"))))
	case "comm.scratch":
		return e.by("32MiB", "64MiB for each rank, 256MiB at most")
	case "comm.deadline":
		return "none"
	case "comm.max_blocks":
		return "as many as are fastest"
	case "collectives.table":
		return "the built-in choice"
	case "collectives.plans":
		return "none"
	case "collectives.sharing":
		return "as many as the ranks find on their GPU"
	case "collectives.lines":
		return e.by("always", "always if NVLink joins every two GPUs of the host, else never")
	case "bootstrap.interface":
		return "the one on the way to the others"
	case "bootstrap.family":
		return "either"
	case "bootstrap.host_id":
		return "the boot id of the kernel"
	case "bootstrap.secret_file":
		return "none"
	case "launch.bind":
		return "numa if the host has several memory nodes, else none"
	case "launch.output_dir":
		return "none: as mscclpp-run itself"
	case "observe.trace":
		return "no trace"
	case "observe.flight":
		return "mscclpp-go/flight in the cache of the user"
	case "observe.metrics":
		return "nowhere"
	case "observe.otlp":
		return "none"
	case "log.file":
		return "standard error"
	case "log.dump_signal":
		return "what the program asks for, else none"
	}
	return ""
}

// left are the values that leave the choice open.
var left = map[string]string{
	"device": "", "gpu_code": "auto", "transports": "[]", "comm.scratch": "0", "comm.deadline": "0s", "comm.max_blocks": "0",
	"collectives.table": "[]", "collectives.plans": "[]", "collectives.sharing": "0", "collectives.lines": "auto",
	"bootstrap.interface": "", "bootstrap.family": "", "bootstrap.host_id": "", "bootstrap.secret_file": "",
	"launch.bind": "auto", "launch.output_dir": "", "observe.trace": "", "observe.flight": "", "observe.metrics": "", "observe.otlp": "", "log.file": "", "log.dump_signal": "",
}

// by is the choice on the device that the configuration names, or on either kind.
func (e *Effective) by(host, gpu string) string {
	switch e.Device {
	case "host":
		return host
	case "", "auto":
		return host + " on the host; on GPUs " + gpu
	}
	return gpu
}
