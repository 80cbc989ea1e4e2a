// Package agree checks our stacks against those of eu-stack and gdb.
package agree
