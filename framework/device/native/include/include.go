// Package include has the header of device back ends, so that builds notice a change of it.
package include

import _ "embed"

// DeviceBackend is the text of mscclpp/device_backend.h.
//
//go:embed mscclpp/device_backend.h
var DeviceBackend string
