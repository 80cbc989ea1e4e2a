//go:build !race

package testprog

const raced = false
