package image

import "github.com/mscclpp-go/mscclpp/framework/internal/machinecode"

// MachineCodeFile ends the names of containers with machine code of images.
const MachineCodeFile = machinecode.Extension

// MachineCode counts, for each chip, of how many of the images containers have machine
// code. Images are named by their sha256. A container that cannot be read is part of the
// error, and the count is that of the others.
func MachineCode(containers, images []string) (map[string]int, error) {
	return machinecode.Covers(containers, images)
}
