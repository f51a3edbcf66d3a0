// Package setup turns a configuration and the variables of a launcher into the parts of a
// job: the rank's place, its device, its transports and the options of collectives.
//
// The root package and the libraries for other languages put the parts together. Nothing
// here reads the environment, or looks at the program that runs, on its own: callers pass
// in the variables and the file system.
package setup
