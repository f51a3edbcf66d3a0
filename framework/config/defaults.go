package config

import (
	"time"

	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Default returns the lowest layer. Each call returns fresh maps and slices.
func Default() Config {
	return Config{
		GPUMemory:  "device",
		GPUCode:    "auto",
		GDRCopy:    true,
		Devices:    map[string]DeviceBackend{},
		Transports: []string{},
		Transport:  map[string]map[string]any{},
		Plugins: Plugins{
			Path:         map[string]Pinned{},
			StartTimeout: Duration(10 * time.Second),
		},
		Collectives: Collectives{CopyEngines: true, CopyScratch: 1 << 30, Lines: "auto"},
		Bootstrap: Bootstrap{
			Timeout:   Duration(30 * time.Second),
			Heartbeat: Duration(time.Second),
		},
		Check:   Check{Signatures: "stall", Overlap: true},
		Launch:  Launch{Bind: "auto", Linger: Duration(time.Second), Grace: Duration(5 * time.Second)},
		Observe: Observe{Enabled: true, Graphs: 64},
		Log:     Log{Level: "warn", Format: "text"},
	}
}

// choices lists the legal values of keys that have few. It serves validation and
// the reference page alike.
var choices = map[string][]string{
	"gpu_memory":                   {"device", "host", "fabric"},
	"gpu_code":                     {"auto", "ptx"},
	"bootstrap.family":             {"", "inet", "inet6"},
	"collectives.lines":            {"auto", "always", "never"},
	"check.signatures":             {"never", "stall", "always"},
	"launch.bind":                  {"none", "core", "numa", "socket", "auto"},
	"log.level":                    {"debug", "info", "warn", "error", "none"},
	"log.format":                   {"text", "json"},
	"log.dump_signal":              {"", "none", "SIGUSR1", "SIGUSR2"},
	"collectives.table.collective": append([]string{""}, collective.Names()...),
}
