// Package machinecode keeps what an assembler made of kernel images beforehand, for GPUs
// that would otherwise compile them when they load them.
//
// A container is a file NAME-sm_90.cubins: a zip archive with the machine code of many
// images for one chip and a manifest, stored as it is: what is loaded at every start is
// read and not expanded, and packages compress it better as a whole. An image is known by
// the sha256 of its text alone, so machine code of a text that has changed is not found,
// and no folder has to be kept in step with another one. A [Library] is the containers of
// an installation as a device uses them.
package machinecode
