"""LTI 1.3 (1EdTech): tests that a learning platform opens, and grades that go back to it.

The service is a *tool*; Moodle, Canvas and others are *platforms*. A person opens a link in a
course, the platform says who that is in a signed message (`launching`), the person takes the test,
and the score goes to the platform's gradebook (`attempts`).

Signatures are checked by joserfc, which Authlib already needs. PyLTI1p3 is not used: its last
release is of 2022, it has adapters for Django and Flask only, and it would add a second and a third
library for the same signatures.
"""
